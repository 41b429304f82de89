package protocol

import "context"

// Authenticate returns the role of a user who gives this password, and whether
// there is one. It is for what is served beside the log to the same users.
func (u *Users) Authenticate(ctx context.Context, name, password string) (Role, bool) {
	return u.role(ctx, name, password)
}
