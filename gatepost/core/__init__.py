"""What everything else stands on: time, ids, errors, secrets, and strict readers of JSON and JOSE. Knows no noun."""
