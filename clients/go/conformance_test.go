package gatepost

// Runs the conformance table. Its format: ../conformance/README.md

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func table[Table any](t *testing.T, name string) Table {
	text, err := os.ReadFile("../conformance/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var found Table
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWebhooks(t *testing.T) {
	found := table[struct {
		Cases []struct {
			Name    string
			Secrets []string
			Headers map[string]any
			Body    string
			Raw     []byte `json:"body_base64"`
			Now     int64
			Expect  struct{ Check string }
		}
	}](t, "webhooks")
	for _, each := range found.Cases {
		t.Run(each.Name, func(t *testing.T) {
			header := http.Header{}
			for name, value := range each.Headers {
				values, isList := value.([]any)
				if !isList {
					values = []any{value}
				}
				for _, value := range values {
					header.Add(name, value.(string))
				}
			}
			body := append([]byte(each.Body), each.Raw...)
			err := verifyWebhook(header, body, each.Secrets, time.Unix(each.Now, 0))
			failed := &WebhookError{}
			if err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			if failed.Check != each.Expect.Check {
				t.Errorf("check %q, expected %q", failed.Check, each.Expect.Check)
			}
		})
	}
}

type tokenStep struct {
	Now     int64
	Scopes  []string
	Times   int
	Request struct {
		Method, URL         string
		Authorization, DPoP []string
	}
	Expect struct {
		Claims, Check, Message any
		Status                 int
		WWWAuthenticate        *string `json:"www_authenticate"`
	}
}

func TestTokens(t *testing.T) {
	found := table[struct {
		KeySets map[string]json.RawMessage `json:"key_sets"`
		Cases   []struct {
			Name    string
			Options VerifierOptions
			KeySets []*string `json:"key_sets"`
			Steps   []tokenStep
			Fetches int
		}
	}](t, "tokens")
	for _, each := range found.Cases {
		t.Run(each.Name, func(t *testing.T) {
			fetched := 0
			each.Options.HTTPClient = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.String() != "https://gatepost.example/oauth/jwks" {
					t.Error(r.URL)
				}
				name := each.KeySets[min(fetched, len(each.KeySets)-1)]
				fetched++
				if name == nil {
					return respond(503, nil, ""), nil
				}
				return respond(200, nil, string(found.KeySets[*name])), nil
			})}
			verifier, err := NewVerifier(each.Options)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range each.Steps {
				verifier.now = func() time.Time { return time.Unix(step.Now, 0) }
				atOnce(step.Times, func() { checkToken(t, verifier, step) })
			}
			if fetched != each.Fetches {
				t.Errorf("%d fetches, expected %d", fetched, each.Fetches)
			}
		})
	}
}

func checkToken(t *testing.T, verifier *Verifier, step tokenStep) {
	request := httptest.NewRequest(step.Request.Method, step.Request.URL, nil)
	request.Header["Authorization"], request.Header["Dpop"] = step.Request.Authorization, step.Request.DPoP
	claims, err := verifier.Verify(request, step.Scopes...)
	if err == nil {
		if !reflect.DeepEqual(any(claims.All), step.Expect.Claims) {
			t.Errorf("claims %v, expected %v", claims.All, step.Expect)
		}
		return
	}
	failed := &TokenError{}
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	challenge := ""
	if step.Expect.WWWAuthenticate != nil {
		challenge = *step.Expect.WWWAuthenticate
	}
	if failed.Check != step.Expect.Check || failed.Status != step.Expect.Status || failed.Message != step.Expect.Message ||
		failed.WWWAuthenticate != challenge {
		t.Errorf("%+v, expected %+v", failed, step.Expect)
	}
	for _, value := range step.Request.Authorization {
		if _, token, _ := strings.Cut(value, " "); len(token) > 8 && strings.Contains(fmt.Sprintf("%v %+v", err, err), token) {
			t.Error("the error contains the token")
		}
	}
}

type operationCall struct {
	Now       int64
	Operation string
	Times     int
	Arguments struct {
		Definition, Parameters, Query, Event, Events json.RawMessage
		IdempotencyKey                               string `json:"idempotency_key"`
		Scope, Resource                              string
	}
	Expect struct {
		Result any
		Items  []any
		Error  map[string]any
	}
}

func TestOperations(t *testing.T) {
	found := table[struct {
		Cases []struct {
			Name    string
			Options struct {
				URL          string
				EventsURL    string            `json:"events_url"`
				ClientID     string            `json:"client_id"`
				ClientSecret string            `json:"client_secret"`
				PrivateKey   map[string]string `json:"private_key"`
				Scope        string
			}
			Calls     []operationCall
			Exchanges []exchange
			Waits     [][2]float64
		}
	}](t, "operations")
	for _, each := range found.Cases {
		t.Run(each.Name, func(t *testing.T) {
			service := &cannedService{t: t, left: each.Exchanges}
			options := Options{
				URL: each.Options.URL, EventsURL: each.Options.EventsURL, ClientID: each.Options.ClientID,
				ClientSecret: each.Options.ClientSecret, Scope: each.Options.Scope,
				HTTPClient: &http.Client{Transport: transport(service.answer)},
			}
			if each.Options.PrivateKey != nil {
				options.PrivateKey, options.KeyID = privateKey(t, each.Options.PrivateKey), each.Options.PrivateKey["kid"]
			}
			api, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			var waited []float64
			api.sleep = func(_ context.Context, delay time.Duration) error {
				waited = append(waited, delay.Seconds())
				return nil
			}
			for _, call := range each.Calls {
				api.now = func() time.Time { return time.Unix(call.Now, 0) }
				service.startCall()
				atOnce(call.Times, func() { checkCall(t, api, call) })
			}
			if len(service.left) > 0 || len(waited) != len(each.Waits) {
				t.Fatalf("%d requests were not sent; waited %v, expected %v", len(service.left), waited, each.Waits)
			}
			for number, wait := range waited {
				if wait < each.Waits[number][0] || wait > each.Waits[number][1] {
					t.Errorf("waited %v, expected %v", waited, each.Waits)
				}
			}
		})
	}
}

func checkCall(t *testing.T, api *API, call operationCall) {
	var items []any
	result, err := perform(t, api, call, &items)
	if expected := call.Expect.Error; expected != nil {
		failed := &Error{}
		if !errors.As(err, &failed) {
			t.Fatalf("%v, expected %v", err, expected)
		}
		all := normalized(t, map[string]any{
			"status": failed.Status, "code": failed.Code, "message": failed.Message, "request_id": failed.RequestID,
			"errors": failed.Errors, "retry_after": failed.RetryAfter.Seconds(),
		}).(map[string]any)
		for name, value := range expected {
			if !reflect.DeepEqual(all[name], value) {
				t.Errorf("%s of the error is %v, expected %v", name, all[name], value)
			}
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if !contains(normalized(t, result), call.Expect.Result) || !contains(normalized(t, items), any(call.Expect.Items)) {
		t.Errorf("%v %v, expected %v", result, items, call.Expect)
	}
}

func perform(t *testing.T, api *API, call operationCall, items *[]any) (any, error) {
	ctx, given := context.Background(), call.Arguments
	var options []CallOption
	if given.IdempotencyKey != "" {
		options = append(options, IdempotencyKey(given.IdempotencyKey))
	}
	switch call.Operation {
	case "define_client":
		return api.DefineClient(ctx, decode[ClientDefinition](t, given.Definition), options...)
	case "define_scope":
		return api.DefineScope(ctx, decode[ScopeDefinition](t, given.Definition), options...)
	case "define_webhook_endpoint":
		return api.DefineWebhookEndpoint(ctx, decode[EndpointDefinition](t, given.Definition), options...)
	case "define_webhook_subscription":
		return api.DefineWebhookSubscription(ctx, decode[SubscriptionDefinition](t, given.Definition), options...)
	case "obtain_token":
		return api.ObtainToken(ctx, decode[TokenRequest](t, given.Parameters))
	case "token":
		return api.Token(ctx, given.Scope, given.Resource)
	case "read_webhook_deliveries":
		query := decode[DeliveryQuery](t, given.Query)
		if query.View == "summary" {
			return api.ReadDeliverySummary(ctx, query)
		}
		return api.ReadWebhookDeliveries(ctx, query)
	case "deliveries":
		for delivery, err := range api.Deliveries(ctx, decode[DeliveryQuery](t, given.Query)) {
			if err != nil {
				return nil, err
			}
			*items = append(*items, delivery)
		}
		return nil, nil
	case "publish_event":
		return api.PublishEvent(ctx, decode[Event](t, given.Event))
	case "publish_events":
		return api.PublishEvents(ctx, decode[[]Event](t, given.Events))
	}
	t.Fatal(call.Operation)
	return nil, nil
}

type exchange struct {
	Request struct {
		Method, URL string
		Query       map[string]any
		Headers     map[string]*string
		JSON        any
		Form        map[string]any
		Assertion   any
	}
	Answer struct {
		Status     int
		Headers    map[string]string
		JSON       json.RawMessage
		Text       string
		Connection string
	}
}

// cannedService checks requests and answers them. It remembers what was generated.
type cannedService struct {
	t          *testing.T
	left       []exchange
	generated  string
	earlier    []string
	assertions []string
}

func (s *cannedService) startCall() {
	s.earlier, s.generated = append(s.earlier, s.generated), ""
}

func (s *cannedService) answer(r *http.Request) (*http.Response, error) {
	if len(s.left) == 0 {
		s.t.Errorf("an unexpected request to %s", r.URL)
		return respond(404, nil, ""), nil
	}
	expected, answer := s.left[0].Request, s.left[0].Answer
	s.left = s.left[1:]
	query := parameters(r.URL.Query())
	if expected.Query == nil {
		expected.Query = map[string]any{}
	}
	r.URL.RawQuery = ""
	if r.Method != expected.Method || r.URL.String() != expected.URL || !reflect.DeepEqual(query, expected.Query) {
		s.t.Errorf("%s %s %v, expected %+v", r.Method, r.URL, query, expected)
	}
	for name, value := range expected.Headers {
		if value == nil {
			s.equal(name, r.Header.Values(name), []string(nil))
		} else {
			s.equal(name, any(r.Header.Get(name)), any(*value))
		}
	}
	body, _ := io.ReadAll(r.Body)
	if expected.JSON != nil {
		s.equal("body", normalized(s.t, json.RawMessage(body)), expected.JSON)
	}
	if expected.Form != nil {
		form, _ := url.ParseQuery(string(body))
		s.assertion(form.Get("client_assertion"), expected.Assertion)
		form.Del("client_assertion")
		s.equal("form", any(parameters(form)), any(expected.Form))
	}
	if answer.Connection != "" {
		return nil, errors.New("the connection failed")
	}
	return respond(answer.Status, answer.Headers, string(answer.JSON)+answer.Text), nil
}

func (s *cannedService) assertion(text string, expected any) {
	if expected == nil {
		s.equal("client_assertion", text, "")
		return
	}
	parsed := parseJWS(text)
	claims := parseObject(parsed.payload)
	jti, _ := claims["jti"].(string)
	if delete(claims, "jti"); jti == "" || strings.Contains(strings.Join(s.assertions, " "), jti) {
		s.t.Error("not a new jti")
	}
	s.assertions = append(s.assertions, jti)
	s.equal("assertion", any(map[string]any{"header": parsed.header, "claims": claims}), expected)
}

func (s *cannedService) equal(what string, actual, expected any) {
	if members, isObject := expected.(map[string]any); isObject {
		found, _ := actual.(map[string]any)
		if len(found) != len(members) {
			s.t.Errorf("%s is %v, expected %v", what, actual, expected)
		}
		for name, value := range members {
			s.equal(name, found[name], value)
		}
		return
	}
	if expected == any("$generated") {
		text, _ := actual.(string)
		if s.generated == "" {
			s.generated = text
		}
		if text == "" || text != s.generated || strings.Contains(strings.Join(s.earlier, " "), text) {
			s.t.Errorf("%s is %v, which is not as generated", what, actual)
		}
		return
	}
	if !reflect.DeepEqual(actual, expected) {
		s.t.Errorf("%s is %v, expected %v", what, actual, expected)
	}
}

// contains reports whether a value has at least the expected members. Times are compared as such.
func contains(actual, expected any) bool {
	switch expected := expected.(type) {
	case map[string]any:
		found, isObject := actual.(map[string]any)
		for name, value := range expected {
			isObject = isObject && contains(found[name], value)
		}
		return isObject
	case []any:
		found, _ := actual.([]any)
		for number := range expected {
			if number >= len(found) || !contains(found[number], expected[number]) {
				return false
			}
		}
		return len(found) == len(expected)
	case string:
		text, _ := actual.(string)
		at, err := time.Parse(time.RFC3339, expected)
		found, err2 := time.Parse(time.RFC3339, text)
		return text == expected || (err == nil && err2 == nil && at.Equal(found))
	}
	return expected == nil || actual == expected
}

func normalized(t *testing.T, value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return decode[any](t, text)
}

func decode[Value any](t *testing.T, text []byte) Value {
	var value Value
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func privateKey(t *testing.T, members map[string]string) *ecdsa.PrivateKey {
	number := func(name string) *big.Int {
		text, err := decodeBase64url(members[name])
		if err != nil {
			t.Fatal(err)
		}
		return new(big.Int).SetBytes(text)
	}
	return &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: elliptic.P256(), X: number("x"), Y: number("y")}, D: number("d")}
}

func parameters(values url.Values) map[string]any {
	found := map[string]any{}
	for name, value := range values {
		found[name] = strings.Join(value, " ")
	}
	return found
}

func atOnce(times int, run func()) {
	var group sync.WaitGroup
	for range max(1, times) {
		group.Add(1)
		go func() {
			defer group.Done()
			run()
		}()
	}
	group.Wait()
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, headers map[string]string, body string) *http.Response {
	header := http.Header{}
	for name, value := range headers {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewBufferString(body))}
}
