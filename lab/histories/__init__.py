"""Histories: the whole plane in one process, in virtual time, and every promise judged.

A seed draws a story: what people do and what fails. The product's own code runs it, over models of brokers,
queues, tables, functions and lines; oracles say which promise it broke (lab/histories/explanation.md).
"""
