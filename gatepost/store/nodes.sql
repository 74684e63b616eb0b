-- name: beat_node
INSERT INTO nodes (id, host, kind, version, started_at, beat_at)
  VALUES (:id, :host, :kind, :version, :started_at, :beat_at)
  ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at
-- name: nodes
SELECT id, host, kind, version, started_at, beat_at FROM nodes ORDER BY started_at, id
-- name: replace_nodes
DELETE FROM nodes WHERE id >= :lowest AND id <= :highest AND id <> :id AND beat_at <= :started_at
-- name: forget_nodes
DELETE FROM nodes WHERE beat_at < :before
-- name: delete_node
DELETE FROM nodes WHERE id = :id
