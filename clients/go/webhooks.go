package gatepost

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	webhookTolerance = 300     // seconds
	maxWebhookSize   = 1 << 20 // an event has at most 256 KiB
	// A sender adds one signature for each of its valid secrets, of which there are two during a rotation.
	maxWebhookSignatures = 16
)

var webhookTimestamp = regexp.MustCompile(`^[0-9]{1,12}$`)

// WebhookError says that a webhook cannot be trusted. Check is the check that failed: secret, headers, id, timestamp,
// signature or body, in this order.
type WebhookError struct {
	Check   string
	Message string
}

func (e *WebhookError) Error() string { return "gatepost: " + e.Message }

// WebhookEvent is the body of a webhook of an endpoint with the format standard.
type WebhookEvent struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Account   string          `json:"account"`
	Data      json.RawMessage `json:"data"`
}

// ReadWebhook reads the body of a request, verifies it as VerifyWebhook does, and returns the event.
func ReadWebhook(r *http.Request, secrets ...string) (*WebhookEvent, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxWebhookSize))
	if err != nil {
		return nil, fmt.Errorf("gatepost: the body of the webhook cannot be read: %w", err)
	}
	if err := VerifyWebhook(r.Header, body, secrets...); err != nil {
		return nil, err
	}
	event := new(WebhookEvent)
	if err := json.Unmarshal(body, event); err != nil {
		return nil, &WebhookError{"body", "The body is signed but is not an event."}
	}
	return event, nil
}

// VerifyWebhook checks that a request is recent and signed with one of the secrets, as specified by Standard Webhooks,
// and that its body is JSON. A secret is a whsec_…, or a whpk_… (the public key of an endpoint with the signing v1a).
// During a rotation, pass several.
func VerifyWebhook(header http.Header, body []byte, secrets ...string) error {
	return verifyWebhook(header, body, secrets, time.Now())
}

func verifyWebhook(header http.Header, body []byte, secrets []string, now time.Time) error {
	if len(secrets) == 0 {
		return &WebhookError{"secret", "No secret was given."}
	}
	verifiers := make([]*webhookVerifier, 0, len(secrets))
	for _, secret := range secrets {
		verifier := newWebhookVerifier(secret)
		if verifier == nil {
			return &WebhookError{"secret", "A secret is whsec_ or whpk_, followed by the key in base64."}
		}
		verifiers = append(verifiers, verifier)
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		values := header.Values(name)
		value := strings.Join(values, ", ") // as proxies join the values of a repeated header
		if value == "" {
			return &WebhookError{"headers", name + " is missing."}
		}
		if len(values) > 1 || strings.Index(value, ", ") > 0 {
			return &WebhookError{"headers", name + " was sent several times."}
		}
	}
	id, timestamp, signatures := header.Get("webhook-id"), header.Get("webhook-timestamp"), header.Get("webhook-signature")
	if strings.Contains(id, ".") { // otherwise the signed content could be split in another way
		return &WebhookError{"id", "webhook-id contains a dot."}
	}
	if !webhookTimestamp.MatchString(timestamp) {
		return &WebhookError{"timestamp", "webhook-timestamp is not a number of seconds."}
	}
	sent, _ := strconv.ParseFloat(timestamp, 64)
	if math.Abs(seconds(now)-sent) > webhookTolerance {
		return &WebhookError{"timestamp", "webhook-timestamp is too old or too new."}
	}
	received := strings.SplitN(signatures, " ", maxWebhookSignatures+1)
	if len(received) > maxWebhookSignatures {
		message := fmt.Sprintf("webhook-signature has more than %d signatures.", maxWebhookSignatures)
		return &WebhookError{"signature", message}
	}
	content := append([]byte(id+"."+timestamp+"."), body...)
	if !matches(verifiers, content, received) {
		return &WebhookError{"signature", "No signature matches a secret."}
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return &WebhookError{"body", "The body is signed but is not JSON."}
	}
	return nil
}

func matches(verifiers []*webhookVerifier, content []byte, signatures []string) bool {
	for _, verifier := range verifiers {
		var isValid func(string) bool
		for _, signature := range signatures {
			version, text, _ := strings.Cut(signature, ",")
			if version != verifier.version {
				continue
			}
			if isValid == nil {
				isValid = verifier.prepare(content)
			}
			if isValid(text) {
				return true
			}
		}
	}
	return false
}

// webhookVerifier verifies signatures of one version with one secret.
type webhookVerifier struct {
	version string
	// prepare returns a function that reports whether a signature of this content is valid.
	prepare func(content []byte) func(signature string) bool
}

// newWebhookVerifier returns the verifier of a secret, or nil if the secret is malformed.
func newWebhookVerifier(secret string) *webhookVerifier {
	if text, found := strings.CutPrefix(secret, "whsec_"); found {
		key := decodeBase64(text)
		if len(key) == 0 {
			return nil
		}
		return &webhookVerifier{"v1", func(content []byte) func(string) bool {
			mac := hmac.New(sha256.New, key) // once, however many signatures there are
			mac.Write(content)
			expected := []byte(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
			return func(signature string) bool { return hmac.Equal(expected, []byte(signature)) }
		}}
	}
	text, found := strings.CutPrefix(secret, "whpk_")
	key := decodeBase64(text)
	if !found || len(key) != ed25519.PublicKeySize {
		return nil
	}
	return &webhookVerifier{"v1a", func(content []byte) func(string) bool {
		return func(text string) bool {
			signature := decodeBase64(text)
			return len(signature) == ed25519.SignatureSize && ed25519.Verify(key, content, signature)
		}
	}}
}

// decodeBase64 decodes text, with up to two characters of padding. It returns nil if the text is not base64.
func decodeBase64(text string) []byte {
	bare := strings.TrimSuffix(strings.TrimSuffix(text, "="), "=")
	decoded, err := base64.RawStdEncoding.DecodeString(bare)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil
	}
	return decoded
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
