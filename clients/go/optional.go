package gatepost

import "encoding/json"

// Optional is a member of a definition. The zero value leaves the member as it is, Null removes it, and Set sets it.
type Optional[T any] struct {
	value  T
	isSent bool
	isNull bool
}

// Set is a member with a value.
func Set[T any](value T) Optional[T] { return Optional[T]{value: value, isSent: true} }

// Null is a member that is removed, or set to its default.
func Null[T any]() Optional[T] { return Optional[T]{isSent: true, isNull: true} }

// IsZero reports whether the member is not sent.
func (o Optional[T]) IsZero() bool { return !o.isSent }

// MarshalJSON implements json.Marshaler.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.isSent || o.isNull {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{isSent: true, isNull: string(data) == "null"}
	if o.isNull {
		return nil
	}
	return json.Unmarshal(data, &o.value)
}
