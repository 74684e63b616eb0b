package gatepost

// What the client does at most for one request, how long it waits, and how much it remembers.

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

const testNow = 1_800_000_000

func TestLimitOfSignatures(t *testing.T) {
	secrets := []string{"whsec_Zmlyc3Q=", "whsec_c2Vjb25k"}
	body := bytes.Repeat([]byte(" "), 1<<20)
	refusal := func(signature string, times int) string {
		header := http.Header{}
		header.Set("webhook-id", "evt_1")
		header.Set("webhook-timestamp", "1800000000")
		header.Set("webhook-signature", strings.TrimSpace(strings.Repeat(signature+" ", times)))
		failed := &WebhookError{}
		if err := verifyWebhook(header, body, secrets, time.Unix(testNow, 0)); !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return failed.Check + ": " + failed.Message
	}
	wrong := "v1," + strings.Repeat("A", 43) + "="
	one := testing.AllocsPerRun(3, func() { refusal(wrong, 1) })
	many := testing.AllocsPerRun(3, func() { refusal(wrong, 16) })
	if many-one > 15 { // an HMAC allocates several times
		t.Errorf("%v allocations for one signature, %v for 16: the HMAC is computed for each", one, many)
	}
	if message := refusal(wrong, 17); message != "signature: webhook-signature has more than 16 signatures." {
		t.Error(message)
	}
}

func TestLimitOfUsedProofs(t *testing.T) {
	used := newUsedProofs(3, 2)
	for _, step := range []struct {
		key, jti    string
		issued, now float64
		isNew       bool
	}{
		{"key", "a", 0, 0, true},
		{"key", "b", 60, 0, true},
		{"key", "c", 0, 0, false}, // the key has used as many as it may
		{"other", "a", 0, 0, true},
		{"third", "a", 0, 0, false}, // no more are remembered
		{"key", "a", 0, 60, false},  // none of them was forgotten
		{"key", "b", 60, 120, false},
		{"third", "a", 120, 120, true}, // two have expired
		{"key", "a", 120, 120, true},
		{"key", "c", 120, 120, false},
		{"key", "b", 400, 400, true}, // all have expired
		{"key", "c", 400, 400, true},
	} {
		if used.add(step.key, step.jti, testNow+step.issued, testNow+step.now) != step.isNew {
			t.Errorf("%+v", step)
		}
	}
}

func TestLimitOfWaiting(t *testing.T) {
	for _, timeout := range []time.Duration{0, -1, time.Hour} {
		var deadline time.Time
		client := &http.Client{Timeout: timeout, Transport: transport(func(r *http.Request) (*http.Response, error) {
			deadline, _ = r.Context().Deadline()
			return respond(200, nil, `{"access_token": "token", "token_type": "Bearer", "expires_in": 3600}`), nil
		})}
		api, err := New(Options{URL: "https://gatepost.example", ClientID: "cli_1", ClientSecret: "gps_1", HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Token(context.Background(), "things:read", ""); err != nil {
			t.Fatal(err)
		}
		expected := requestTimeout
		if timeout > 0 {
			expected = timeout
		}
		if left := time.Until(deadline); left <= 0 || left > expected || left < expected/2 {
			t.Errorf("with the timeout %v, a token request may take %v", timeout, left)
		}
	}
}
