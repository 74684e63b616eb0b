package gatepost

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	maxTokenSize = 16384
	leeway       = 10 // seconds
)

type check struct {
	status  int
	error   string // of the challenge
	message string
}

// checks are the checks of an access token. The order in which they are made is that of the methods of Verifier.
var checks = map[string]check{
	"authorization": {401, "", "The request has no access token."},
	"request":       {400, "invalid_request", "Send one Authorization header with the scheme Bearer or DPoP and a token."},
	"size":          {401, "invalid_token", "The token is larger than 16384 bytes."},
	"format":        {401, "invalid_token", "The token is not a signed JWT."},
	"typ":           {401, "invalid_token", "The token is not an access token (typ at+jwt)."},
	"alg":           {401, "invalid_token", "The algorithm of the token is not allowed."},
	"keys":          {503, "", "The key set of the issuer is not available."},
	"kid":           {401, "invalid_token", "The key of the token is not in the key set of the issuer."},
	"signature":     {401, "invalid_token", "The signature of the token is not valid."},
	"iss":           {401, "invalid_token", "The token is from another issuer."},
	"aud":           {401, "invalid_token", "The token is for another audience."},
	"exp":           {401, "invalid_token", "The token has expired."},
	"nbf":           {401, "invalid_token", "The token is not valid yet."},
	"account":       {401, "invalid_token", "The token is of another account."},
	"dpop_scheme":   {401, "invalid_token", "A token that is bound to a key needs the scheme DPoP, any other Bearer."},
	"dpop_proof":    {401, "invalid_dpop_proof", "Send one DPoP proof that is signed with the public key in its header."},
	"dpop_key":      {401, "invalid_dpop_proof", "The token is bound to another key than that of the DPoP proof."},
	"dpop_htm":      {401, "invalid_dpop_proof", "The DPoP proof is for another method."},
	"dpop_htu":      {401, "invalid_dpop_proof", "The DPoP proof is for another URL."},
	"dpop_ath":      {401, "invalid_dpop_proof", "The DPoP proof is for another token."},
	"dpop_iat":      {401, "invalid_dpop_proof", "The DPoP proof is too old or too new."},
	"dpop_jti":      {401, "invalid_dpop_proof", "The DPoP proof has no jti or was used before, or too many proofs were used."},
	"scope":         {403, "insufficient_scope", "The token does not have the required scope."},
}

var (
	tokenAlgorithms = []string{"ES256", "RS256", "EdDSA"}
	authScheme      = regexp.MustCompile(`(?i)^(bearer|dpop)\b`)
	credentials     = regexp.MustCompile(`(?i)^(bearer|dpop) +([A-Za-z0-9._~+/-]+=*)$`)
)

// TokenError says that a request has no token that is good for it.
type TokenError struct {
	Check           string // the check that failed
	Status          int    // to answer with
	WWWAuthenticate string // the value of this header to answer with; empty if the token is not at fault
	Message         string
}

func (e *TokenError) Error() string { return "gatepost: " + e.Message }

// Refuse answers a request for which Verify returned an error.
func Refuse(w http.ResponseWriter, err error) {
	failed := &TokenError{Status: http.StatusInternalServerError, Message: "The token cannot be verified."}
	errors.As(err, &failed)
	if failed.WWWAuthenticate != "" {
		w.Header().Set("WWW-Authenticate", failed.WWWAuthenticate)
	}
	http.Error(w, failed.Message, failed.Status)
}

func newTokenError(name, scheme string, scopes []string) *TokenError {
	failed := checks[name]
	if strings.HasPrefix(name, "dpop_") {
		scheme = "DPoP"
	}
	var attributes []string
	if failed.error != "" {
		attributes = append(attributes, fmt.Sprintf(`error="%s", error_description="%s"`, failed.error, failed.message))
	}
	if name == "scope" {
		attributes = append(attributes, fmt.Sprintf(`scope="%s"`, strings.Join(scopes, " ")))
	}
	if scheme == "DPoP" {
		attributes = append(attributes, fmt.Sprintf(`algs="%s"`, strings.Join(proofAlgorithms, " ")))
	}
	challenge := strings.TrimSpace(scheme + " " + strings.Join(attributes, ", "))
	if name == "keys" {
		challenge = ""
	}
	return &TokenError{name, failed.status, challenge, failed.message}
}

// Claims are the claims of an access token. All has every claim as it was sent.
type Claims struct {
	Subject   string
	ClientID  string
	Account   string
	Scope     string
	ID        string
	ExpiresAt time.Time
	All       map[string]any
}

// VerifierOptions configure a Verifier.
type VerifierOptions struct {
	Issuer   string // the base URL of Gatepost, with or without a slash at the end
	Audience string // the resource of the scopes of this API
	// Account is the only account whose tokens are accepted. Needed if several share the API. If it is empty, as by
	// default, tokens of every account are accepted: if you read it from your configuration, check that it is set.
	Account    string
	Algorithms []string     // optional: by default all that Gatepost signs access tokens with
	BaseURL    string       // optional: the URL of this API as clients see it. Needed for DPoP behind a proxy
	HTTPClient *http.Client // optional
}

// Verifier verifies the access tokens (RFC 9068) of requests. Create one and keep it: it caches the key set.
type Verifier struct {
	options VerifierOptions
	keys    keySet
	used    *usedProofs
	now     func() time.Time
}

// NewVerifier returns a Verifier.
func NewVerifier(options VerifierOptions) (*Verifier, error) {
	if options.Issuer == "" || options.Audience == "" {
		return nil, fmt.Errorf("gatepost: Issuer and Audience are needed")
	}
	if options.Algorithms == nil {
		options.Algorithms = tokenAlgorithms
	}
	for _, name := range options.Algorithms {
		if !slices.Contains(tokenAlgorithms, name) {
			return nil, fmt.Errorf("gatepost: Algorithms: %q is not one of %s", name, strings.Join(tokenAlgorithms, ", "))
		}
	}
	options.Issuer = strings.TrimRight(options.Issuer, "/")
	v := &Verifier{options: options, used: newUsedProofs(maxUsedProofs, maxOfOneKey), now: time.Now}
	v.keys.url = options.Issuer + "/oauth/jwks"
	v.keys.client = withoutRedirects(options.HTTPClient)
	v.keys.now = func() time.Time { return v.now() }
	return v, nil
}

// Verify returns the claims of the token, if it is good for the request and has all of the scopes. Otherwise the error
// is a *TokenError, or that of the context of the request.
func (v *Verifier) Verify(r *http.Request, scopes ...string) (*Claims, error) {
	authorization := r.Header.Values("Authorization")
	if !slices.ContainsFunc(authorization, authScheme.MatchString) {
		return nil, newTokenError("authorization", "Bearer", nil)
	}
	match := credentials.FindStringSubmatch(authorization[0])
	if match == nil || len(authorization) > 1 {
		return nil, newTokenError("request", "Bearer", nil)
	}
	scheme, token := "Bearer", match[2]
	if strings.EqualFold(match[1], "DPoP") {
		scheme = "DPoP"
	}
	claims, failed := v.signedClaims(r, token)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if failed == "" {
		failed = v.wrongClaim(claims)
	}
	if failed == "" {
		failed = v.wrongBinding(r, scheme, token, claims)
	}
	scope, _ := claims["scope"].(string)
	if failed == "" && !containsAll(strings.Split(scope, " "), scopes) {
		failed = "scope"
	}
	if failed != "" {
		return nil, newTokenError(failed, scheme, scopes)
	}
	return newClaims(claims), nil
}

// signedClaims returns the claims of a token whose signature is valid, or the check that failed.
func (v *Verifier) signedClaims(r *http.Request, token string) (map[string]any, string) {
	if len(token) > maxTokenSize {
		return nil, "size"
	}
	parsed := parseJWS(token)
	if parsed == nil {
		return nil, "format"
	}
	if typ := parsed.header["typ"]; typ != "at+jwt" && typ != "application/at+jwt" { // RFC 9068, section 4
		return nil, "typ"
	}
	alg, _ := parsed.header["alg"].(string)
	if !slices.Contains(v.options.Algorithms, alg) {
		return nil, "alg"
	}
	kid, _ := parsed.header["kid"].(string)
	found, err := v.keys.find(r.Context(), kid)
	if err != nil {
		return nil, "keys"
	}
	if found == nil || kid == "" {
		return nil, "kid"
	}
	if key := found.publicKey(alg); key == nil || !parsed.isSignedWith(key, alg) {
		return nil, "signature"
	}
	claims := parseSignedObject(parsed.payload)
	_, hasSubject := claims["sub"].(string)
	_, hasClient := claims["client_id"].(string)
	if !hasSubject || !hasClient { // RFC 9068, section 2.2
		return nil, "format"
	}
	return claims, ""
}

func (v *Verifier) wrongClaim(claims map[string]any) string {
	now := seconds(v.now())
	if claims["iss"] != v.options.Issuer {
		return "iss"
	}
	audiences, _ := claims["aud"].([]any)
	if claims["aud"] != v.options.Audience && !slices.Contains(audiences, any(v.options.Audience)) {
		return "aud"
	}
	if expires, isTime := numericDate(claims["exp"]); !isTime || now >= expires+leeway {
		return "exp"
	}
	if nbf, found := claims["nbf"]; found {
		if starts, isTime := numericDate(nbf); !isTime || starts > now+leeway {
			return "nbf"
		}
	}
	if v.options.Account != "" && claims["account"] != v.options.Account {
		return "account"
	}
	return ""
}

func (v *Verifier) wrongBinding(r *http.Request, scheme, token string, claims map[string]any) string {
	binding, isBound := claims["cnf"]
	if isBound != (scheme == "DPoP") {
		return "dpop_scheme"
	}
	if !isBound {
		return ""
	}
	members, _ := binding.(map[string]any)
	boundTo, _ := members["jkt"].(string)
	bound := boundRequest{r.Header.Values("DPoP"), r.Method, v.url(r), token, boundTo, v.now()}
	return bound.check(v.used)
}

// url returns the URL of a request as the client sees it.
func (v *Verifier) url(r *http.Request) string {
	base := strings.TrimSuffix(v.options.BaseURL, "/")
	if base == "" {
		base = "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
	}
	return base + r.URL.EscapedPath()
}

func newClaims(all map[string]any) *Claims {
	text := func(name string) string { value, _ := all[name].(string); return value }
	expiry, _ := all["exp"].(float64)
	return &Claims{
		Subject: text("sub"), ClientID: text("client_id"), Account: text("account"), Scope: text("scope"), ID: text("jti"),
		ExpiresAt: time.Unix(int64(expiry), 0), All: all,
	}
}

func containsAll(granted, required []string) bool {
	return !slices.ContainsFunc(required, func(scope string) bool { return !slices.Contains(granted, scope) })
}
