"""Model a fleet: a simulation of the router's queue, a model of the bill, and AWS's quotas."""
