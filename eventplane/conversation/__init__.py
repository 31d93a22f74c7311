"""Conversations: an event that is a request, and the replies of all who handle it.

A request and a reply are events like any other: they take routes, expire, and are audited. Two attributes,
`replyto` and `correlationid`, and the asker's own channel for replies make them a conversation
(docs/how-to/conversations.md).
"""
