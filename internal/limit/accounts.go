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
