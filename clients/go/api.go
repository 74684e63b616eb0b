package gatepost

import (
	"context"
	"crypto"
	"crypto/rand"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options configure an API.
type Options struct {
	URL          string        // the base URL of Gatepost
	ClientID     string        //
	ClientSecret string        // for a client with client_secret_basic
	PrivateKey   crypto.Signer // for a client with private_key_jwt: ECDSA (P-256), Ed25519 or RSA (PS256)
	KeyID        string        // of the private key, if the client has several
	Scope        string        // optional: the scopes of the tokens for operations, instead of only that of each operation
	EventsURL    string        // optional: the URL of the operations plane, for publishing events
	HTTPClient   *http.Client  // optional: without a Timeout, it is 30 seconds
}

// API calls the operations with the credentials of one client. It can be used by several goroutines.
type API struct {
	options Options
	url     string
	client  *http.Client
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error

	mu     sync.Mutex
	tokens map[tokenName]*cachedToken
}

// New returns an API.
func New(options Options) (*API, error) {
	if !strings.HasPrefix(options.URL, "https://") && !strings.HasPrefix(options.URL, "http://") {
		return nil, errors.New("gatepost: URL must begin with https:// or http://")
	}
	if options.ClientID == "" {
		return nil, errors.New("gatepost: ClientID is missing")
	}
	if (options.ClientSecret == "") == (options.PrivateKey == nil) {
		return nil, errors.New("gatepost: either ClientSecret or PrivateKey is needed")
	}
	if options.PrivateKey != nil && algorithmOf(options.PrivateKey) == "" {
		return nil, errors.New("gatepost: PrivateKey must be of the type ECDSA (P-256), Ed25519 or RSA")
	}
	return &API{
		options: options, url: strings.TrimSuffix(options.URL, "/"), client: withoutRedirects(options.HTTPClient),
		now: time.Now, sleep: sleep, tokens: map[tokenName]*cachedToken{},
	}, nil
}

// CallOption changes a single call.
type CallOption func(http.Header)

// IdempotencyKey sets the key of a definition. By default each call has a new key, which its retries share.
func IdempotencyKey(key string) CallOption {
	return func(header http.Header) { header.Set("Idempotency-Key", key) }
}

// DefineClient creates a client, or changes or reads one (ClientID). It needs the scope gatepost:clients.
func (a *API) DefineClient(ctx context.Context, definition ClientDefinition, options ...CallOption) (*Client, error) {
	return define[Client](ctx, a, "gatepost:clients", "/oauth/clients", definition, options)
}

// DefineScope defines a scope. It needs the scope gatepost:scopes.
func (a *API) DefineScope(ctx context.Context, definition ScopeDefinition, options ...CallOption) (*Scope, error) {
	return define[Scope](ctx, a, "gatepost:scopes", "/oauth/scopes", definition, options)
}

// DefineWebhookEndpoint creates an endpoint, or changes or reads one (ID). It needs the scope gatepost:endpoints.
func (a *API) DefineWebhookEndpoint(
	ctx context.Context, definition EndpointDefinition, options ...CallOption,
) (*Endpoint, error) {
	return define[Endpoint](ctx, a, "gatepost:endpoints", "/webhooks/endpoints", definition, options)
}

// DefineWebhookSubscription creates a subscription, or changes or reads one (ID). It needs the scope
// gatepost:subscriptions.
func (a *API) DefineWebhookSubscription(
	ctx context.Context, definition SubscriptionDefinition, options ...CallOption,
) (*Subscription, error) {
	return define[Subscription](ctx, a, "gatepost:subscriptions", "/webhooks/subscriptions", definition, options)
}

// ReadWebhookDeliveries reads one page of deliveries. It needs the scope gatepost:deliveries, as do the other methods
// that read.
func (a *API) ReadWebhookDeliveries(ctx context.Context, query DeliveryQuery) (*DeliveryPage, error) {
	return read[DeliveryPage](ctx, a, query, "")
}

// ReadDeliverySummary reads the summary of all deliveries.
func (a *API) ReadDeliverySummary(ctx context.Context, query DeliveryQuery) (*DeliverySummary, error) {
	return read[DeliverySummary](ctx, a, query, "summary")
}

// ReadEndpoints reads one page of endpoints with their subscriptions.
func (a *API) ReadEndpoints(ctx context.Context, query DeliveryQuery) (*EndpointPage, error) {
	return read[EndpointPage](ctx, a, query, "endpoints")
}

// Deliveries iterates over all deliveries that match, page by page. It ends after the first error.
func (a *API) Deliveries(ctx context.Context, query DeliveryQuery) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		for {
			page, err := a.ReadWebhookDeliveries(ctx, query)
			if err != nil {
				yield(nil, err)
				return
			}
			for number := range page.Data {
				if !yield(&page.Data[number], nil) {
					return
				}
			}
			if page.NextCursor == nil {
				return
			}
			query.Cursor = *page.NextCursor
		}
	}
}

// Event is an event to publish.
type Event struct {
	Type    string `json:"type"`              // a dotted lower-case name
	Source  string `json:"source"`            // a URI reference that names the publisher
	ID      string `json:"id"`                // unique within its source; by default a new one
	Subject string `json:"subject,omitempty"` //
	Data    any    `json:"data,omitempty"`    // any value that can be encoded as JSON
}

// PublishedEvent is an event that was published.
type PublishedEvent struct {
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	At         time.Time `json:"at"`
	Matched    int64     `json:"matched"` // the number of deliveries
	Deliveries []string  `json:"deliveries"`
	Again      bool      `json:"again"` // whether the same event was published before
}

// PublishEvent publishes an event. It needs the scope gatepost:events.
func (a *API) PublishEvent(ctx context.Context, event Event) (*PublishedEvent, error) {
	published := new(PublishedEvent)
	if err := a.publish(ctx, "application/cloudevents+json", newCloudEvent(event), published); err != nil {
		return nil, err
	}
	return published, nil
}

// PublishEvents publishes up to 100 events together or not at all. It needs the scope gatepost:events.
func (a *API) PublishEvents(ctx context.Context, events []Event) ([]PublishedEvent, error) {
	body := make([]cloudEvent, 0, len(events))
	for _, event := range events {
		body = append(body, newCloudEvent(event))
	}
	var published struct {
		Data []PublishedEvent `json:"data"`
	}
	err := a.publish(ctx, "application/cloudevents-batch+json", body, &published)
	return published.Data, err
}

type cloudEvent struct {
	SpecVersion string `json:"specversion"`
	Event
}

func newCloudEvent(event Event) cloudEvent {
	if event.ID == "" {
		event.ID = newID()
	}
	return cloudEvent{"1.0", event}
}

func (a *API) publish(ctx context.Context, contentType string, body, result any) error {
	if a.options.EventsURL == "" {
		return &Error{Code: "events_url_missing", Message: "EventsURL is missing: it is needed to publish events."}
	}
	header := http.Header{"Content-Type": {contentType}}
	url := strings.TrimSuffix(a.options.EventsURL, "/") + "/events"
	return a.call(ctx, "gatepost:events", http.MethodPost, url, header, body, result)
}

func define[Result any](
	ctx context.Context, a *API, scope, path string, definition any, options []CallOption,
) (*Result, error) {
	header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {newID()}}
	for _, option := range options {
		option(header)
	}
	result := new(Result)
	if err := a.call(ctx, scope, http.MethodPost, a.url+path, header, definition, result); err != nil {
		return nil, err
	}
	return result, nil
}

func read[Result any](ctx context.Context, a *API, query DeliveryQuery, view string) (*Result, error) {
	query.View = view
	parameters, err := values(query)
	if err != nil {
		return nil, err
	}
	url := a.url + "/webhooks/deliveries"
	if len(parameters) > 0 {
		url += "?" + parameters.Encode()
	}
	result := new(Result)
	if err := a.call(ctx, "gatepost:deliveries", http.MethodGet, url, http.Header{}, nil, result); err != nil {
		return nil, err
	}
	return result, nil
}

// call sends a request with a token. If the token is refused, it sends the request once more with a new one.
func (a *API) call(ctx context.Context, scope, method, url string, header http.Header, body, result any) error {
	var text []byte
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = encoded
	}
	if a.options.Scope != "" {
		scope = a.options.Scope
	}
	name := tokenName{scope: scope}
	for attempt := 0; ; attempt++ {
		token, err := a.token(ctx, name)
		if err != nil {
			return err
		}
		err = a.send(ctx, request{method, url, true, func() (http.Header, []byte, error) {
			complete := header.Clone()
			complete.Set("Authorization", "Bearer "+token.access)
			return complete, text, nil
		}}, result)
		if attempt > 0 || !isRefused(err) {
			return err
		}
		a.drop(name, token)
	}
}

func newID() string { return rand.Text() }
