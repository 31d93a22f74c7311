"""The main job on one machine: cloud, homes, input, faults, consumers, audit, verdict, report."""
