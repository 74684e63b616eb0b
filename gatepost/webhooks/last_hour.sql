-- name: deliveries_since
SELECT what, sum(count) FROM tallies WHERE account = :account AND since >= :since
    AND (what = 'made' OR substr(what, 1, 6) = 'ended ') GROUP BY what
