package gatepost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

const (
	retries         = 3
	firstDelay      = 500 * time.Millisecond
	maxRetryAfter   = time.Minute
	requestTimeout  = 30 * time.Second
	maxResponseSize = 64 << 20
)

var digits = regexp.MustCompile(`^[0-9]{1,9}$`)

// Error says that Gatepost refused a request or could not be reached. It contains no token and no secret.
type Error struct {
	Status     int    // of the response; 0 if there was none
	Code       string // of the response, or connection_failed, unexpected_response or events_url_missing
	Message    string
	RequestID  string        // identifies the request in the log of the service
	Errors     []MemberError // the members of the body that are wrong
	RetryAfter time.Duration // after which the service asks to try again

	cause error
}

// MemberError says what is wrong with a member of the body.
type MemberError struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

func (e *Error) Error() string { return fmt.Sprintf("gatepost: %s: %s", e.Code, e.Message) }

// Unwrap returns the error of the connection, or nil.
func (e *Error) Unwrap() error { return e.cause }

// request is what all attempts have in common.
type request struct {
	method, url  string
	isRepeatable bool
	// prepare returns the headers and the body of an attempt.
	prepare func() (http.Header, []byte, error)
}

// send sends a request until it succeeds or must not be sent again, and decodes the response.
func (a *API) send(ctx context.Context, r request, result any) error {
	for attempt := range retries + 1 {
		header, body, err := r.prepare()
		if err != nil {
			return err
		}
		failed, hasRetryAfter := a.exchange(ctx, r, header, body, result)
		if failed == nil {
			return nil
		}
		isTemporary := failed.Status == 0 || failed.Status == http.StatusTooManyRequests ||
			failed.Status == http.StatusServiceUnavailable
		if !isTemporary || !r.isRepeatable || attempt == retries || failed.RetryAfter > maxRetryAfter || ctx.Err() != nil {
			return failed
		}
		delay := time.Duration(float64(firstDelay<<attempt) * (0.5 + rand.Float64()/2))
		if hasRetryAfter {
			delay = failed.RetryAfter
		}
		if err := a.sleep(ctx, delay); err != nil {
			return failed
		}
	}
	return nil
}

// exchange makes one attempt. It reports also whether the response has Retry-After.
func (a *API) exchange(ctx context.Context, r request, header http.Header, body []byte, result any) (*Error, bool) {
	request, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(body))
	if err != nil {
		return &Error{Code: "connection_failed", Message: "The URL is not valid.", cause: err}, false
	}
	request.Header = header
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Gatepost-Version", Version)
	response, err := a.client.Do(request)
	var text []byte
	if err == nil {
		defer response.Body.Close()
		text, err = io.ReadAll(io.LimitReader(response.Body, maxResponseSize))
	}
	if err != nil {
		message := fmt.Sprintf("No response from %s://%s.", request.URL.Scheme, request.URL.Host)
		return &Error{Code: "connection_failed", Message: message, cause: err}, false
	}
	if object := parseObject(text); object != nil && response.StatusCode/100 == 2 {
		if err := json.Unmarshal(text, result); err == nil {
			return nil, false
		}
	}
	return a.refusal(response, text)
}

// refusal returns the error of a response: that of OAuth (RFC 6749) or problem details (RFC 9457).
func (a *API) refusal(response *http.Response, text []byte) (*Error, bool) {
	failed := &Error{Status: response.StatusCode, RequestID: response.Header.Get("X-Request-Id")}
	var hasRetryAfter bool
	failed.RetryAfter, hasRetryAfter = retryAfter(response.Header.Get("Retry-After"), a.now())
	var oauth OAuthError
	var problem struct {
		Code, Detail string
		Errors       []MemberError
	}
	switch {
	case json.Unmarshal(text, &oauth) == nil && oauth.Error != "":
		failed.Code, failed.Message = oauth.Error, oauth.ErrorDescription
	case json.Unmarshal(text, &problem) == nil && problem.Code != "":
		failed.Code, failed.Message, failed.Errors = problem.Code, problem.Detail, problem.Errors
	default:
		failed.Code = "unexpected_response"
		failed.Message = fmt.Sprintf("The response with status %d is not from Gatepost.", response.StatusCode)
	}
	return failed, hasRetryAfter
}

// retryAfter parses Retry-After, which is a number of seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if digits.MatchString(value) {
		count, _ := strconv.Atoi(value)
		return time.Duration(count) * time.Second, true
	}
	at, err := http.ParseTime(value)
	return max(0, at.Sub(now)), err == nil
}

func sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withoutRedirects returns a copy of a client that follows no redirects and has a timeout. Token requests depend on the
// timeout, because they do not end with the context of the caller.
func withoutRedirects(client *http.Client) *http.Client {
	own := http.Client{}
	if client != nil {
		own = *client
	}
	if own.Timeout <= 0 {
		own.Timeout = requestTimeout
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// isRefused reports whether an operation refused its token.
func isRefused(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Status == http.StatusUnauthorized
}
