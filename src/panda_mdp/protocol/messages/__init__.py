"""Every message of the protocol, version 1: what may travel between a client and a server.

Models are strict and closed: no conversion, no unknown field, bounded sizes, finite numbers. A
request has no field in which a user's record could travel: a client sends outputs and anchors that
were drawn, ids that it made from the operating system's generator, and nothing else. Validation
errors name the field and never show the value. Weights have 62 bits and travel as decimal strings,
because a JSON number in a browser has 53.
"""
