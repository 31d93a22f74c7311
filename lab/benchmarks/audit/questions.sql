-- The audit's questions as somebody would ask them without Spark. Each statement is a step by the name before it;
-- `questions.py` fills in where the archive is and what the contracts say. The views `ledger_rows`, `tap_rows` and
-- `handover_rows` are those of rows_raw.sql or of rows_compacted.sql.

-- ledger
CREATE TABLE ledger AS
SELECT *
FROM ledger_rows
WHERE decided_at_ms BETWEEN 0 AND $last_ms AND entered_at_ms BETWEEN 0 AND $last_ms
    AND outcome IN ('delivered', 'dead_lettered', 'expired', 'dropped', 'unrouted') AND entered_by IS NOT NULL
    AND contract_version IS NOT NULL AND source IS NOT NULL AND id IS NOT NULL;

-- tap
CREATE TABLE tap AS
WITH rows AS (
    SELECT * EXCLUDE (devicesequence, senderservice), try_cast(devicesequence AS BIGINT) AS sequence,
        client_id || '/' || coalesce(senderservice, '') AS sender
    FROM tap_rows
    WHERE accepted_at_ms BETWEEN 0 AND $last_ms AND client_id IS NOT NULL AND message_id IS NOT NULL
        AND "index" IS NOT NULL AND (has_event <> (refusal IS NOT NULL))
)
SELECT *, MAP {$routes} AS routes FROM rows;

-- events
CREATE TABLE events AS
SELECT sender, source, id, count(DISTINCT (message_id, "index")) AS copies, min(accepted_at_ms) AS accepted_at_ms,
    arg_min(client_id, accepted_at_ms) AS client_id, arg_min(epoch, accepted_at_ms) AS epoch,
    arg_min(sequence, accepted_at_ms) AS sequence, arg_min(recordedtime, accepted_at_ms) AS recordedtime,
    arg_min(expirytime, accepted_at_ms) AS expirytime, arg_min(routes, accepted_at_ms) AS routes,
    arg_min(filename, accepted_at_ms) AS file
FROM tap WHERE source IS NOT NULL AND id IS NOT NULL AND type IS NOT NULL GROUP BY sender, source, id;

-- deliveries
CREATE TABLE deliveries AS
WITH decided AS (
    SELECT sender, source, id, coalesce(route, '-') AS route, count(*) FILTER (outcome = 'delivered') AS delivered,
        min(outcome) AS outcome, min(decided_at_ms) AS decided_at_ms, min(entered_at_ms) AS entered_at_ms,
        min(priority) AS priority,
        min(destination) AS destination, min(filename) AS ledger_file
    FROM ledger WHERE id <> '' GROUP BY ALL
),
versions AS (SELECT sender, source, id, min(contract_version) AS version FROM ledger GROUP BY ALL),
expected AS (
    SELECT e.* EXCLUDE (routes), unnest(e.routes[coalesce(v.version, '$first')]) AS route
    FROM events e LEFT JOIN versions v USING (sender, source, id)
)
SELECT *, CASE WHEN copies IS NULL THEN 'misrouted' WHEN outcome IS NULL THEN 'lost' ELSE outcome END AS verdict
FROM expected FULL JOIN decided USING (sender, source, id, route);

-- handovers
CREATE TABLE handovers AS
SELECT channel, sender, source, id, min(outcome) AS outcome, count(*) AS copies
FROM handover_rows
GROUP BY ALL;

-- findings
COPY (
    SELECT * FROM deliveries
    WHERE verdict NOT IN ('delivered', 'unrouted') OR delivered > coalesce(copies, 1) OR copies > 1
) TO '$output/findings.parquet' (FORMAT parquet);

-- consumers
COPY (
    SELECT d.source, d.id, d.destination, d.delivered, h.outcome, h.copies
    FROM deliveries d
    LEFT JOIN handovers h ON d.sender = h.sender AND d.source = h.source AND d.id = h.id AND d.destination = h.channel
    WHERE d.delivered > 0 AND d.destination IN ($ended)
        AND (coalesce(h.outcome, '') <> 'delivered' OR h.copies > d.delivered)
) TO '$output/consumers.parquet' (FORMAT parquet);

-- order
COPY (
    SELECT source, id, route FROM (
        SELECT *, min(decided_at_ms) OVER (
            PARTITION BY destination, source, epoch ORDER BY coalesce(sequence, entered_at_ms)
            RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS later
        FROM deliveries WHERE delivered > 0 AND destination IN ($ordered)
    ) WHERE later < decided_at_ms
) TO '$output/order.parquet' (FORMAT parquet);

-- devices
COPY (
    WITH numbers AS (SELECT DISTINCT client_id, epoch, sequence FROM tap WHERE sequence IS NOT NULL),
    steps AS (SELECT *, lag(sequence) OVER (PARTITION BY client_id, epoch ORDER BY sequence) AS before FROM numbers)
    SELECT client_id, epoch, before + 1 AS first, sequence - 1 AS last FROM steps WHERE sequence > before + 1
) TO '$output/devices.parquet' (FORMAT parquet);

-- manifests
COPY (
    WITH stated AS (
        SELECT client_id, epoch, sequence,
            unnest(from_json(stated, '[{"destination":"VARCHAR","first":"BIGINT","last":"BIGINT","count":"BIGINT"}]'))
            AS of
        FROM tap WHERE stated IS NOT NULL
    )
    SELECT client_id, epoch, sequence, of.first, lag(sequence) OVER (PARTITION BY client_id, epoch ORDER BY sequence)
        AS before
    FROM stated WHERE of.destination = '$uplink' AND of.count > 0 QUALIFY of.first > before
) TO '$output/manifests.parquet' (FORMAT parquet);

-- routes
COPY (
    SELECT route, verdict, count(*) AS events, sum(delivered) AS delivered FROM deliveries GROUP BY ALL
) TO '$output/routes.parquet' (FORMAT parquet);

-- latency
COPY (
    SELECT priority,
        quantile_cont(accepted_at_ms - epoch_ms(try_cast(recordedtime AS TIMESTAMPTZ)), [0.5, 0.95, 0.99, 1]) AS up,
        quantile_cont(decided_at_ms - accepted_at_ms, [0.5, 0.95, 0.99, 1]) AS routed
    FROM deliveries WHERE delivered > 0 GROUP BY ALL
) TO '$output/latency.parquet' (FORMAT parquet);

-- dead_letters
COPY (
    SELECT reason, count(*) AS letters FROM ledger WHERE outcome = 'dead_lettered' GROUP BY ALL
) TO '$output/dead_letters.parquet' (FORMAT parquet);

-- answers
COPY (
    SELECT
        (SELECT count(*) FROM events) AS events_archived,
        (SELECT count(*) FROM events WHERE copies > 1) AS "duplicate device_cloud",
        (SELECT count(*) FROM deliveries WHERE delivered > coalesce(copies, 1)) AS "duplicate router",
        (SELECT count(*) FROM '$output/order.parquet') AS "reordered router",
        (SELECT count(*) FROM '$output/manifests.parquet') AS "missing_manifest device_cloud",
        (SELECT count(*) FROM '$output/consumers.parquet' WHERE outcome IS NULL) AS "lost inbox_consumer",
        (SELECT count(*) FROM '$output/consumers.parquet' WHERE outcome = 'dead_lettered')
            AS "dead_lettered inbox_consumer",
        (SELECT count(*) FROM '$output/consumers.parquet' WHERE copies > delivered) AS "duplicate inbox_consumer",
        (SELECT MAP_FROM_ENTRIES(list((destination, delivered))) FROM (
            SELECT destination, sum(delivered)::BIGINT AS delivered FROM deliveries WHERE delivered > 0 GROUP BY ALL
        )) AS delivered
) TO '$output/answers.json' (FORMAT json);
