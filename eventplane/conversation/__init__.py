"""Conversations: an event that is a request, and the replies of all who handle it.

A request and a reply are events like any other: they take routes, expire, and are audited. What makes them a
conversation are attributes, `replyto` and `correlationid`, and a channel of the asker's own for the replies
(docs/conversations.md).
"""
