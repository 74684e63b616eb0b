package gatepost

import (
	"crypto/sha256"
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
	maxUsedProofs  = 1_000_000
	maxOfOneKey    = 100_000 // of the used proofs
	proofSkew      = 10      // seconds by which the clock may be set back
	proofPeriod    = 10      // seconds; proofs that expire in the same period are forgotten together
)

var (
	proofAlgorithms = []string{"ES256", "RS256", "PS256", "EdDSA", "Ed25519"}
	privateMembers  = []string{"d", "k", "p", "q", "dp", "dq", "qi", "oth"}
	escape          = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
)

// usedProofs are the used proofs that have not expired, in this process. None is forgotten before it expires. At the
// limits, new proofs are refused. That of one key keeps a client from using up the memory for the others.
type usedProofs struct {
	limit, limitPerKey int

	mu      sync.Mutex
	periods map[int64]map[proofHash]string // by when they expire: proofs, and their keys
	ofKey   map[string]int                 // how many proofs of a key there are
}

// proofHash is a hash of the thumbprint of a key and a jti.
type proofHash [sha256.Size]byte

func newUsedProofs(limit, limitPerKey int) *usedProofs {
	return &usedProofs{
		limit: limit, limitPerKey: limitPerKey, periods: map[int64]map[proofHash]string{}, ofKey: map[string]int{},
	}
}

// add records a proof. It returns false if the proof was used before, or if there are too many.
func (u *usedProofs) add(thumbprint, jti string, issued, now float64) bool {
	proof := proofHash(sha256.Sum256([]byte(thumbprint + " " + jti)))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forgetExpired(now)
	count := 0
	for _, proofs := range u.periods {
		if _, isUsed := proofs[proof]; isUsed {
			return false
		}
		count += len(proofs)
	}
	if u.ofKey[thumbprint] >= u.limitPerKey || count >= u.limit {
		return false
	}
	u.ofKey[thumbprint]++
	period := int64((issued + proofTolerance + proofSkew) / proofPeriod)
	if u.periods[period] == nil {
		u.periods[period] = map[proofHash]string{}
	}
	u.periods[period][proof] = thumbprint
	return true
}

// forgetExpired removes expired proofs. There are about fifteen periods, because the times of accepted proofs are
// within proofTolerance of now.
func (u *usedProofs) forgetExpired(now float64) {
	for period, proofs := range u.periods {
		if float64(period+1)*proofPeriod > now {
			continue
		}
		delete(u.periods, period)
		for _, thumbprint := range proofs {
			if u.ofKey[thumbprint]--; u.ofKey[thumbprint] == 0 {
				delete(u.ofKey, thumbprint)
			}
		}
	}
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
	members, isObject := proof.header["jwk"].(map[string]any)
	isPrivate := slices.ContainsFunc(privateMembers, func(name string) bool { _, found := members[name]; return found })
	claims := parseSignedObject(proof.payload)
	if !slices.Contains(proofAlgorithms, alg) || !isObject || isPrivate || claims == nil {
		return "dpop_proof"
	}
	// Anyone can send a key that is expensive to verify with, so the keys are compared before that.
	thumbprint := jwk(members).thumbprint()
	if thumbprint != r.boundTo {
		return "dpop_key"
	}
	if key := jwk(members).publicKey(alg); key == nil || !proof.isSignedWith(key, alg) {
		return "dpop_proof"
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
	now := seconds(r.now)
	issued, isTime := numericDate(claims["iat"])
	if !isTime || math.Abs(now-issued) > proofTolerance {
		return "dpop_iat"
	}
	jti, _ := claims["jti"].(string)
	if jti == "" || utf8.RuneCountInString(jti) > maxJTI || !used.add(thumbprint, jti, issued, now) {
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
