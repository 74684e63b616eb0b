package gatepost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	keySetMaxAge      = 900 * time.Second // Gatepost announces keys at least a day before it uses them
	keySetMinInterval = 60 * time.Second
	keySetTimeout     = 10 * time.Second
	maxKeySetSize     = 1 << 20
)

var errNoKeySet = errors.New("no key set")

// keySet is the key set of the issuer, fetched when it is needed and cached.
type keySet struct {
	url    string
	client *http.Client
	now    func() time.Time

	mu        sync.Mutex
	keys      map[string]jwk
	fetchedAt time.Time
	triedAt   time.Time
	fetching  chan struct{} // closed at the end of a fetch
}

// find returns the key with this id for signatures, or nil.
func (s *keySet) find(ctx context.Context, kid string) (jwk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, isKnown := s.keys[kid]
	if s.isDue(isKnown) || (!isKnown && s.fetching != nil) {
		if s.fetching == nil {
			s.fetching, s.triedAt = make(chan struct{}), s.now()
			go s.refresh()
		}
		if err := s.wait(ctx, s.fetching); err != nil {
			return nil, err
		}
	}
	if s.keys == nil {
		return nil, errNoKeySet
	}
	return s.keys[kid], nil
}

func (s *keySet) isDue(isKnown bool) bool {
	if s.keys == nil {
		return true
	}
	isOld := s.now().Sub(s.fetchedAt) > keySetMaxAge
	return (isOld || !isKnown) && s.now().Sub(s.triedAt) >= keySetMinInterval
}

// wait waits for the end of a fetch, without the lock.
func (s *keySet) wait(ctx context.Context, done <-chan struct{}) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refresh fetches the key set. If it fails, the previous one stays in use.
func (s *keySet) refresh() {
	keys, err := s.fetch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.keys, s.fetchedAt = keys, s.now()
	}
	close(s.fetching)
	s.fetching = nil
}

func (s *keySet) fetch() (map[string]jwk, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keySetTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxKeySetSize))
	if err != nil {
		return nil, err
	}
	members, isKeySet := parseObject(text)["keys"].([]any)
	if !isKeySet {
		return nil, errNoKeySet
	}
	keys := map[string]jwk{}
	for _, member := range members { // those that are not keys for signatures are ignored: RFC 7517, section 5
		key, _ := member.(map[string]any)
		kid, _ := key["kid"].(string)
		if use, found := key["use"]; kid != "" && (!found || use == "sig") {
			keys[kid] = key
		}
	}
	return keys, nil
}
