"""PAnDA and public tables as a service: messages, a client, a ledger and a server.

The record never leaves the client (docs/protocol.md). Parts are imported where they are used: the
client needs the extra `client`, the server the extra `server`.
"""
