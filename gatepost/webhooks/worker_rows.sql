-- name: beat
INSERT INTO workers (id, place, beat_at) VALUES (:id, :place, :at) ON CONFLICT (id) DO UPDATE SET place = excluded.place, beat_at = excluded.beat_at
-- name: workers
SELECT id, place, beat_at FROM workers ORDER BY id
-- name: forget_worker
DELETE FROM workers WHERE id = :id AND beat_at = :beat_at
