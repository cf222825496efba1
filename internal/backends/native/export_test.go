package native

// Unbrokered makes the backend guard paths although nobody makes the changes there,
// to show what the Landlock domain alone refuses.
func (b *Backend) Unbrokered() *Backend {
	b.unbrokered = true
	return b
}
