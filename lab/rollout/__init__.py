"""The trial of staged roll-outs: harmful and harmless changes of a contract, in a thousand homes."""
