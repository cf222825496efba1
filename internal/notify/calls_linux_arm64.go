package notify

// translate has nothing to do: this architecture never had the old calls.
func (c *call) translate() {}
