package notify

// handleLegacy is for calls that this architecture never had.
func (c *call) handleLegacy() bool { return false }
