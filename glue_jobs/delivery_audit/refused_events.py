"""Events that a router says it refused: it is believed where the rest of the archive bears it out."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from eventplane.contract import SchemaCheck
from eventplane.delivery import (
    DEAD_LETTER_TYPE,
    LETTER_ID_DIGITS,
    PAYLOAD_INVALID,
    UNKNOWN_DATASCHEMA,
    Outcome,
)
from eventplane.hops import HOP_LIMIT
from glue_jobs.delivery_audit.contracts import ContractHistory
from glue_jobs.delivery_audit.route_filters import EVERY_ROUTE

UNBACKED = "(unbacked)"
"""Stands for the outcome of a row that says `dead_lettered` and has nothing to show for it."""


def believed(ledger: DataFrame, history: ContractHistory) -> DataFrame:
    """The ledger's rows about events, in which what is not to be believed has the outcome `UNBACKED`.

    A dead-lettered event has a letter that was delivered to somebody. If all its routes ended so, the row's
    contract must also have the payloads of its type checked, or the event went round in circles: there is no
    other reason to refuse one.
    """
    dead = sf.col("outcome") == Outcome.DEAD_LETTERED
    letters = ledger.where((sf.col("type") == DEAD_LETTER_TYPE) & (sf.col("outcome") == Outcome.DELIVERED))
    letters = letters.select(sf.col("id").alias("letter")).distinct()
    # As `eventplane.delivery.letter_id` has it. Apart from the other rows: only these need the join.
    digest = sf.sha2(sf.concat_ws("\n", "source", "id"), 256)
    claims = ledger.where(dead).withColumn("letter_id", sf.substring(digest, 1, LETTER_ID_DIGITS))
    claims = claims.join(letters, on=claims["letter_id"] == letters["letter"], how="left")
    backed = sf.col("letter").isNotNull() & ((sf.col("route") != EVERY_ROUTE) | _could_be_refused(history))
    outcome = sf.when(backed, sf.col("outcome")).otherwise(sf.lit(UNBACKED))
    judged = claims.withColumn("outcome", outcome).select(*ledger.columns)
    return ledger.where(~dead).unionByName(judged)


def _could_be_refused(history: ContractHistory) -> Column:
    """Whether the row's contract allows the refusal that the row speaks of."""
    row = sf.col("contract_version"), sf.col("type")
    invalid = history.has_check(*row, SchemaCheck.KNOWN, SchemaCheck.STRICT)
    unknown = history.has_check(*row, SchemaCheck.STRICT)
    reason = sf.col("reason")
    # Whether an event came round so often, the tap knows: `deliveries` asks it.
    looped = reason == HOP_LIMIT
    return ((reason == PAYLOAD_INVALID) & invalid) | ((reason == UNKNOWN_DATASCHEMA) & unknown) | looped
