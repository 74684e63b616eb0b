-- name: endpoint_queues_given
/*given: account bytea, endpoint bytea, since bytea */
SELECT given.endpoint,
    (SELECT count(*) FROM (SELECT 1 FROM queue q WHERE q.account = given.account AND q.endpoint = given.endpoint
      LIMIT /*python: MAX_WAITING */) AS counted),
    (SELECT d.id FROM deliveries d WHERE d.account = given.account AND d.endpoint = given.endpoint
      AND d.id > given.since ORDER BY /*postgres: d.account DESC, d.endpoint DESC, */ d.id DESC LIMIT 1),
    (SELECT q.due FROM queue q WHERE q.account = given.account AND q.endpoint = given.endpoint AND q.lane = 0
      ORDER BY q.due LIMIT 1),
    (SELECT q.due FROM queue q WHERE q.account = given.account AND q.endpoint = given.endpoint AND q.lane = 1
      ORDER BY q.due LIMIT 1)
  FROM given
