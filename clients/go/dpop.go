package gatepost

import (
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	maxProofSize   = 16384
	proofTolerance = 60 // seconds
	maxJTI         = 256
	maxUsedProofs  = 100_000
)

var (
	proofAlgorithms = []string{"ES256", "RS256", "PS256", "EdDSA", "Ed25519"}
	privateMembers  = []string{"d", "k", "p", "q", "dp", "dq", "qi", "oth"}
	escape          = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
)

// usedProofs are the proofs that were used in the last two minutes, in this process, up to a limit.
type usedProofs struct {
	mu    sync.Mutex
	until map[string]time.Time
	order []string // by time
}

// add records a proof. It returns false if the proof was used before.
func (u *usedProofs) add(proof string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.order) > 0 && (!u.until[u.order[0]].After(now) || len(u.order) >= maxUsedProofs) {
		delete(u.until, u.order[0])
		u.order = u.order[1:]
	}
	if _, isUsed := u.until[proof]; isUsed {
		return false
	}
	if u.until == nil {
		u.until = map[string]time.Time{}
	}
	u.until[proof] = now.Add(2 * proofTolerance * time.Second)
	u.order = append(u.order, proof)
	return true
}

// boundRequest is a request with a token that is bound to a key.
type boundRequest struct {
	proofs             []string
	method, url, token string
	boundTo            string
	now                time.Time
}

// check checks the proof (RFC 9449, section 4.3). It returns the check that failed, or "".
func (r *boundRequest) check(used *usedProofs) string {
	if len(r.proofs) != 1 || len(r.proofs[0]) > maxProofSize {
		return "dpop_proof"
	}
	proof := parseJWS(r.proofs[0])
	if proof == nil || proof.header["typ"] != "dpop+jwt" {
		return "dpop_proof"
	}
	alg, _ := proof.header["alg"].(string)
	members, _ := proof.header["jwk"].(map[string]any)
	isPrivate := slices.ContainsFunc(privateMembers, func(name string) bool { _, found := members[name]; return found })
	claims := parseObject(proof.payload)
	if !slices.Contains(proofAlgorithms, alg) || isPrivate || claims == nil {
		return "dpop_proof"
	}
	if key := jwk(members).publicKey(alg); key == nil || !proof.isSignedWith(key, alg) {
		return "dpop_proof"
	}
	thumbprint := jwk(members).thumbprint()
	if thumbprint != r.boundTo {
		return "dpop_key"
	}
	if claims["htm"] != r.method {
		return "dpop_htm"
	}
	htu, _ := claims["htu"].(string)
	if expected := normalizeURL(r.url); expected == "" || normalizeURL(htu) != expected {
		return "dpop_htu"
	}
	if claims["ath"] != hashed(r.token) {
		return "dpop_ath"
	}
	if iat, isNumber := claims["iat"].(float64); !isNumber || math.Abs(seconds(r.now)-iat) > proofTolerance {
		return "dpop_iat"
	}
	jti, _ := claims["jti"].(string)
	if jti == "" || utf8.RuneCountInString(jti) > maxJTI || !used.add(thumbprint+" "+jti, r.now) {
		return "dpop_jti"
	}
	return ""
}

// normalizeURL returns a URL without query and fragment, normalized as in RFC 3986, sections 6.2.2 and 6.2.3, or "" if
// it is not a URL with a host.
func normalizeURL(text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return c < '!' || c > '~' || c == '\\' }) {
		return ""
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.User != nil || parsed.Hostname() == "" {
		return ""
	}
	defaultPort, isHTTP := map[string]string{"http": "80", "https": "443"}[parsed.Scheme]
	if !isHTTP {
		return ""
	}
	host := strings.ToLower(parsed.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := parsed.Port(); port != "" && port != defaultPort {
		host += ":" + port
	}
	return parsed.Scheme + "://" + host + normalizePath(parsed.EscapedPath())
}

// normalizePath decodes escapes of unreserved characters, and removes dot segments (RFC 3986, section 5.2.4).
func normalizePath(path string) string {
	decoded := escape.ReplaceAllStringFunc(path, func(text string) string {
		character, _ := url.PathUnescape(text)
		if strings.ContainsAny(character, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~") {
			return character
		}
		return strings.ToUpper(text)
	})
	var kept []string
	segments := strings.Split(strings.TrimPrefix(decoded, "/"), "/")
	for _, segment := range segments {
		switch segment {
		case ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
		}
	}
	if last := segments[len(segments)-1]; last == "." || last == ".." {
		kept = append(kept, "")
	}
	return "/" + strings.Join(kept, "/")
}
