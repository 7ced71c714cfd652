package limit

// Accounts are those of the Set, in the order of joining.
func (s *Set) Accounts() []Account { return s.inOrder() }

// SetOf is a Set of these accounts.
func SetOf(accounts ...Account) *Set {
	s := new(Set)
	for _, a := range accounts {
		s.Join(a)
	}
	return s
}

// Watch has changed called after each change of an account, until stop.
func (b *Bundle) Watch(changed func()) (stop func()) { return b.all.Watch(changed) }

// Empty reports whether nothing is paid. b may be nil.
func (b *Bundle) Empty() bool { return b == nil || b.all.Own() == 0 }
