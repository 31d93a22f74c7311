"""How a device gets its own certificate, and a new one in time: AWS IoT fleet provisioning by claim.

`python -m edge.provisioning --settings FILE` runs beside the forwarder, as a process of its own that ends
when there is nothing left to do. The forwarder reads its certificate for each connection and need not know.
"""
