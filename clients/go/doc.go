// Package gatepost is the client of Gatepost. It verifies access tokens and webhooks, obtains tokens, and calls the
// operations. It depends only on the standard library.
package gatepost
