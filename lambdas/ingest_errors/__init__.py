"""What an IoT rule could not hand to a queue gets there after all, or becomes a dead letter."""
