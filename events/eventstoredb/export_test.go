package eventstoredb

import "time"

// SetLifetime bounds the life of each subscription that begins later.
func (s *Store) SetLifetime(d time.Duration) { s.lifetime = d }
