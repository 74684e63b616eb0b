package gatepost

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"unicode/utf8"
)

// jwk is a key as JSON (RFC 7517).
type jwk map[string]any

// jws is a compact JSON Web Signature (RFC 7515).
type jws struct {
	header    map[string]any
	payload   []byte
	signature []byte
	signed    []byte
}

// Shorter keys are weak, longer ones cost too much to verify with.
const minRSABits, maxRSABits = 2048, 8192

var pss = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}

// parseJWS returns nil if the text is malformed or needs extensions (crit, b64).
func parseJWS(text string) *jws {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil
	}
	header, err := decodeBase64url(parts[0])
	payload, err2 := decodeBase64url(parts[1])
	signature, err3 := decodeBase64url(parts[2])
	if errors.Join(err, err2, err3) != nil {
		return nil
	}
	found := &jws{parseSignedObject(header), payload, signature, []byte(parts[0] + "." + parts[1])}
	_, isCritical := found.header["crit"]
	if _, hasB64 := found.header["b64"]; found.header == nil || isCritical || hasB64 {
		return nil
	}
	return found
}

// parseSignedObject returns nil also if the text is not UTF-8 or a member is repeated, because parsers differ in what
// they make of that.
func parseSignedObject(text []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if !utf8.Valid(text) || !hasUniqueMembers(decoder) {
		return nil
	}
	return parseObject(text)
}

// hasUniqueMembers reads a value. It returns false if an object in it has two members of the same name.
func hasUniqueMembers(decoder *json.Decoder) bool {
	token, err := decoder.Token()
	start, isNested := token.(json.Delim)
	if err != nil || !isNested {
		return err == nil
	}
	names := map[any]bool{}
	for decoder.More() {
		if start == '{' {
			name, _ := decoder.Token()
			if names[name] {
				return false
			}
			names[name] = true
		}
		if !hasUniqueMembers(decoder) {
			return false
		}
	}
	_, err = decoder.Token()
	return err == nil
}

// parseObject returns nil if the text is not a JSON object. Other than a struct, a map has names as they were sent.
// Numbers that are out of range are nil.
func parseObject(text []byte) map[string]any {
	var found map[string]any
	outOfRange := new(json.UnmarshalTypeError)
	if err := json.Unmarshal(text, &found); err != nil && !errors.As(err, &outOfRange) {
		return nil
	}
	return found
}

// numericDate returns a NumericDate (RFC 7519, section 2) before the year 6326. It reports whether the value is one.
func numericDate(value any) (float64, bool) {
	number, isNumber := value.(float64)
	return number, isNumber && number >= 0 && number < 1<<37
}

func (k jwk) text(name string) string {
	text, _ := k[name].(string)
	return text
}

// publicKey returns the key for an algorithm, or nil if the key is not for it.
func (k jwk) publicKey(alg string) crypto.PublicKey {
	if own, found := k["alg"]; found && own != nil && own != alg {
		return nil
	}
	switch kty, crv := k.text("kty"), k.text("crv"); {
	case alg == "ES256" && kty == "EC" && crv == "P-256":
		x, err := decodeBase64url(k.text("x"))
		y, err2 := decodeBase64url(k.text("y"))
		if errors.Join(err, err2) != nil || len(x) != 32 || len(y) != 32 {
			return nil
		}
		return &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(x), Y: new(big.Int).SetBytes(y)}
	case (alg == "EdDSA" || alg == "Ed25519") && kty == "OKP" && crv == "Ed25519":
		x, err := decodeBase64url(k.text("x"))
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil
		}
		return ed25519.PublicKey(x)
	case (alg == "RS256" || alg == "PS256") && kty == "RSA":
		n, err := decodeBase64url(k.text("n"))
		e, err2 := decodeBase64url(k.text("e"))
		modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
		if errors.Join(err, err2) != nil || modulus.BitLen() < minRSABits || modulus.BitLen() > maxRSABits {
			return nil
		}
		if exponent.BitLen() > 31 || exponent.Int64() < 3 { // crypto/rsa has no greater exponents
			return nil
		}
		return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}
	}
	return nil
}

// thumbprint is defined in RFC 7638.
func (k jwk) thumbprint() string {
	members := map[string]any{}
	for _, name := range map[string][]string{"EC": {"crv", "x", "y"}, "OKP": {"crv", "x"}, "RSA": {"e", "n"}}[k.text("kty")] {
		members[name] = k[name]
	}
	members["kty"] = k["kty"]
	text, _ := json.Marshal(members) // with its names in order
	return hashed(string(text))
}

func (j *jws) isSignedWith(key crypto.PublicKey, alg string) bool {
	digest := sha256.Sum256(j.signed)
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if len(j.signature) != 64 {
			return false
		}
		r, s := new(big.Int).SetBytes(j.signature[:32]), new(big.Int).SetBytes(j.signature[32:])
		return ecdsa.Verify(key, digest[:], r, s)
	case ed25519.PublicKey:
		return ed25519.Verify(key, j.signed, j.signature)
	case *rsa.PublicKey:
		if alg == "PS256" {
			return rsa.VerifyPSS(key, crypto.SHA256, digest[:], j.signature, pss) == nil
		}
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], j.signature) == nil
	}
	return false
}

// algorithmOf returns the algorithm that a private key signs with, or "" if the key is of another type.
func algorithmOf(key crypto.Signer) string {
	switch key := key.Public().(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return "ES256"
		}
	case ed25519.PublicKey:
		return "EdDSA"
	case *rsa.PublicKey:
		return "PS256"
	}
	return ""
}

// signJWT signs claims with a private key of one of the types that algorithmOf knows.
func signJWT(key crypto.Signer, kid string, claims map[string]any) (string, error) {
	alg := algorithmOf(key)
	header := map[string]any{"typ": "JWT", "alg": alg}
	if kid != "" {
		header["kid"] = kid
	}
	head, err := json.Marshal(header)
	body, err2 := json.Marshal(claims)
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	content := encodeBase64url(head) + "." + encodeBase64url(body)
	digest := sha256.Sum256([]byte(content))
	var signature []byte
	switch alg {
	case "EdDSA":
		signature, err = key.Sign(rand.Reader, []byte(content), crypto.Hash(0))
	case "PS256":
		signature, err = key.Sign(rand.Reader, digest[:], pss)
	default:
		signature, err = signECDSA(key, digest[:])
	}
	return content + "." + encodeBase64url(signature), err
}

// signECDSA signs a digest in the form of RFC 7518, section 3.4: two numbers of 32 bytes.
func signECDSA(key crypto.Signer, digest []byte) ([]byte, error) {
	encoded, err := key.Sign(rand.Reader, digest, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var numbers struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(encoded, &numbers); err != nil {
		return nil, err
	}
	signature := make([]byte, 64)
	numbers.R.FillBytes(signature[:32])
	numbers.S.FillBytes(signature[32:])
	return signature, nil
}

func hashed(text string) string {
	digest := sha256.Sum256([]byte(text))
	return encodeBase64url(digest[:])
}

func encodeBase64url(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func decodeBase64url(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") { // which the decoder would skip
		return nil, errors.New("a line break in base64url")
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}
