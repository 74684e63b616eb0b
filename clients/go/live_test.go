package gatepost

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestLive uses a running service. The environment variable GATEPOST says where it is, and with which credentials.
func TestLive(t *testing.T) {
	text := os.Getenv("GATEPOST")
	if text == "" {
		t.Skip("GATEPOST is not set")
	}
	live := decode[struct{ URL, EventsURL, ClientID, ClientSecret, Resource string }](t, []byte(text))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	admin, err := New(Options{
		URL: live.URL, EventsURL: live.EventsURL, ClientID: live.ClientID, ClientSecret: live.ClientSecret,
	})
	must(t, err)
	checkLiveToken(t, ctx, admin, live.URL, live.Resource)

	received := make(chan *WebhookEvent, 1)
	secret := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := ReadWebhook(r, <-secret)
		if err != nil {
			t.Error(err)
		}
		received <- event
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	endpoint, err := admin.DefineWebhookEndpoint(ctx, EndpointDefinition{URL: Set(receiver.URL), Signing: Set("v1a")})
	must(t, err)
	_, err = admin.DefineWebhookSubscription(ctx, SubscriptionDefinition{
		EndpointID: Set(endpoint.ID), Events: Set([]string{"invoice.*"}),
	})
	must(t, err)
	secret <- *endpoint.Secret
	event := Event{Type: "invoice.paid", Source: "/billing", ID: "17-paid", Data: map[string]int{"invoice": 17}}
	published, err := admin.PublishEvent(ctx, event)
	must(t, err)
	if got := <-received; got.ID != published.ID || string(got.Data) != `{"invoice":17}` {
		t.Errorf("received %+v, published %+v", got, published)
	}
	again, err := admin.PublishEvent(ctx, event)
	must(t, err)
	if !again.Again || again.ID != published.ID {
		t.Errorf("published again: %+v", again)
	}
	for { // the delivery ends after the receiver has responded
		var statuses []string
		for delivery, err := range admin.Deliveries(ctx, DeliveryQuery{EventID: published.ID, Include: "payload"}) {
			must(t, err)
			statuses = append(statuses, delivery.Status)
		}
		if len(statuses) == 1 && statuses[0] == "succeeded" {
			return
		}
		must(t, sleep(ctx, 20*time.Millisecond))
	}
}

// checkLiveToken defines a client with a key, obtains a token with it, and verifies the token.
func checkLiveToken(t *testing.T, ctx context.Context, admin *API, url, resource string) {
	_, err := admin.DefineScope(ctx, ScopeDefinition{Name: "things:read", Resource: Set(resource)})
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	x, y := encodeBase64url(key.X.FillBytes(make([]byte, 32))), encodeBase64url(key.Y.FillBytes(make([]byte, 32)))
	curve, kid := "P-256", "key-1"
	robot, err := admin.DefineClient(ctx, ClientDefinition{
		ClientName: Set("Robot"), GrantTypes: Set([]string{"client_credentials"}), Scope: Set("things:read"),
		TokenEndpointAuthMethod: Set("private_key_jwt"),
		JWKS:                    Set(KeySet{Keys: []KeySetKey{{Kty: "EC", Crv: &curve, Kid: &kid, X: &x, Y: &y}}}),
	})
	must(t, err)
	api, err := New(Options{URL: url, ClientID: robot.ClientID, PrivateKey: key, KeyID: kid})
	must(t, err)
	token, err := api.Token(ctx, "things:read", "")
	must(t, err)
	verifier, err := NewVerifier(VerifierOptions{Issuer: url, Audience: resource, Account: robot.Account})
	must(t, err)
	request := httptest.NewRequest(http.MethodGet, "/things", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	claims, err := verifier.Verify(request, "things:read")
	must(t, err)
	if claims.Subject != robot.ClientID || claims.Account != robot.Account {
		t.Errorf("claims %+v", claims)
	}
	if _, err := verifier.Verify(request, "things:write"); err == nil || err.(*TokenError).Check != "scope" {
		t.Errorf("a missing scope: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
