package gatepost

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	tokenMargin       = time.Minute
	assertionLifetime = 60 // seconds
	assertionType     = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

type tokenName struct{ scope, resource string }

// cachedToken is a token, or a request for one. The other members are set when done is closed.
type cachedToken struct {
	done    chan struct{}
	access  string
	renewAt time.Time
	err     error
}

func (c *cachedToken) isUsable(now time.Time) bool {
	select {
	case <-c.done:
		return c.err == nil && now.Before(c.renewAt)
	default:
		return true
	}
}

// Token returns an access token of this client, from the cache or by client credentials. Calls at the same time share a
// request. The resource is needed if the scopes are for several, and otherwise empty.
func (a *API) Token(ctx context.Context, scope, resource string) (string, error) {
	token, err := a.token(ctx, tokenName{scope, resource})
	if err != nil {
		return "", err
	}
	return token.access, nil
}

func (a *API) token(ctx context.Context, name tokenName) (*cachedToken, error) {
	now := a.now()
	a.mu.Lock()
	token := a.tokens[name]
	if token == nil || !token.isUsable(now) {
		token = &cachedToken{done: make(chan struct{})}
		a.tokens[name] = token
		go a.renew(context.WithoutCancel(ctx), token, name, now) // others may wait for it, too
	}
	a.mu.Unlock()
	select {
	case <-token.done:
		return token, token.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *API) renew(ctx context.Context, token *cachedToken, name tokenName, now time.Time) {
	request := TokenRequest{GrantType: "client_credentials", Scope: name.scope, Resource: name.resource}
	answer, err := a.ObtainToken(ctx, request)
	if err == nil && !isBearerToken(answer) {
		err = &Error{Code: "unexpected_response", Message: "The response of the token endpoint is not a token."}
	}
	if token.err = err; err == nil {
		lifetime := time.Duration(answer.ExpiresIn) * time.Second
		token.access, token.renewAt = answer.AccessToken, now.Add(lifetime-min(tokenMargin, lifetime/10))
	}
	close(token.done)
}

func isBearerToken(t *Token) bool {
	return t.AccessToken != "" && strings.EqualFold(t.TokenType, "Bearer") && t.ExpiresIn > 0 && t.ExpiresIn <= math.MaxInt32
}

// drop removes a token from the cache.
func (a *API) drop(name tokenName, token *cachedToken) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens[name] == token {
		delete(a.tokens, name)
	}
}

// ObtainToken obtains a token by any grant type. Only requests with client credentials are repeated when they fail.
func (a *API) ObtainToken(ctx context.Context, parameters TokenRequest) (*Token, error) {
	form, err := values(parameters)
	if err != nil {
		return nil, err
	}
	token := new(Token)
	err = a.send(ctx, request{
		method: http.MethodPost, url: a.url + "/oauth/tokens", isRepeatable: parameters.GrantType == "client_credentials",
		prepare: func() (http.Header, []byte, error) { return a.authenticated(form) },
	}, token)
	if err != nil {
		return nil, err
	}
	return token, nil
}

// authenticated returns a token request with the authentication of the client. Each assertion can be used only once.
func (a *API) authenticated(form url.Values) (http.Header, []byte, error) {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	if a.options.PrivateKey == nil { // RFC 6749, section 2.3.1
		text := url.QueryEscape(a.options.ClientID) + ":" + url.QueryEscape(a.options.ClientSecret)
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(text)))
		return header, []byte(form.Encode()), nil
	}
	id, iat := a.options.ClientID, a.now().Unix()
	assertion, err := signJWT(a.options.PrivateKey, a.options.KeyID, map[string]any{
		"iss": id, "sub": id, "aud": a.url, "iat": iat, "exp": iat + assertionLifetime, "jti": newID(),
	})
	authentication := url.Values{"client_id": {id}, "client_assertion_type": {assertionType}, "client_assertion": {assertion}}
	for name, value := range form {
		authentication[name] = value
	}
	return header, []byte(authentication.Encode()), err
}

// values returns the members of a struct that are not empty as parameters.
func values(parameters any) (url.Values, error) {
	text, err := json.Marshal(parameters)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var members map[string]any
	if err := decoder.Decode(&members); err != nil {
		return nil, err
	}
	found := url.Values{}
	for name, member := range members {
		switch member := member.(type) {
		case string:
			found.Set(name, member)
		case json.Number:
			found.Set(name, member.String())
		}
	}
	return found, nil
}
