package plan

// RuleNetworkProtocol refuses what cannot be judged: malformed requests, hidden
// names. It is built in, and no option lifts it.
const RuleNetworkProtocol = "network.protocol"

// AnyServer reports whether every name that a client could give to the server is
// allowed on a connection that Connect allowed, so that it need not be known.
func (j *NetJudge) AnyServer(d Dest) bool {
	v := j.Connect(d)
	if !v.Allowed || v.HTTP {
		return false
	}
	for i := range j.deny {
		if r := &j.deny[i]; !r.prefix.IsValid() && r.about(d.Protocol, d.Port) {
			return false
		}
	}
	if v.ByAddress || v.Rule == RuleNetworkMode {
		return true
	}
	for i := range j.allow {
		if r := &j.allow[i]; r.every && !r.http && r.about(d.Protocol, d.Port) && r.leads(d) {
			return true
		}
	}
	return false
}
