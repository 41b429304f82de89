package protocol

// Busy takes the one place where passwords are proved, until it is given back.
func (u *Users) Busy() (giveBack func()) {
	u.hashing <- struct{}{}
	return func() { <-u.hashing }
}
