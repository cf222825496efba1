package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/runlog"
)

// networkFlags choose connections of the log.
type networkFlags struct {
	on      bool
	host    string
	verdict string
}

// wanted reports whether connections are asked for: each filter of them asks.
func (n *networkFlags) wanted() bool { return n.on || n.host != "" || n.verdict != "" }

// filter chooses the connections that the flags are about.
func (n *networkFlags) filter(f *audit.Filter) error {
	host, err := parseHostFilter(n.host)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"", runlog.Allow, runlog.Deny}, n.verdict) {
		return fmt.Errorf("--verdict %s: unknown; write %s or %s", n.verdict, runlog.Allow, runlog.Deny)
	}
	f.Match = func(e audit.Event) bool {
		c := e.Connection
		if c == nil {
			return false
		}
		if c.Count > 0 { // it stands for many, of which no host is known
			return n.host == "" && (n.verdict != runlog.Deny || c.Refused > 0) && (n.verdict != runlog.Allow || c.Count > c.Refused)
		}
		return (n.verdict == "" || e.Verdict == n.verdict) && host.matches(c)
	}
	return nil
}

// A hostFilter chooses connections by their other end. Its zero value chooses
// all.
type hostFilter struct {
	name   string // in lower case
	under  bool   // name and what ends in it: from "*.name"
	prefix netip.Prefix
	port   int
}

// parseHostFilter reads HOST, *.HOST, an address or a CIDR, each but the last
// with an optional port.
func parseHostFilter(text string) (hostFilter, error) {
	if text == "" {
		return hostFilter{}, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return hostFilter{prefix: p.Masked()}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return hostFilter{prefix: wholeAddress(a)}, nil
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return hostFilter{prefix: wholeAddress(ap.Addr()), port: int(ap.Port())}, nil
	}
	name, portText, hasPort := strings.Cut(text, ":")
	port, err := strconv.ParseUint(portText, 10, 16)
	if hasPort && err != nil || name == "" || strings.ContainsAny(name, "/ ") {
		return hostFilter{}, fmt.Errorf("--host %s: is not a host; write for example example.com, *.example.com, example.com:443 or 10.0.0.0/8", text)
	}
	suffix, under := strings.CutPrefix(name, "*.")
	return hostFilter{name: strings.ToLower(strings.TrimSuffix(suffix, ".")), under: under, port: int(port)}, nil
}

func wholeAddress(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

func (h hostFilter) matches(c *audit.Connection) bool {
	if h.port != 0 && h.port != c.Port {
		return false
	}
	if h.prefix.IsValid() {
		a, err := netip.ParseAddr(c.Address)
		return err == nil && h.prefix.Contains(a.Unmap().WithZone(""))
	}
	name := strings.ToLower(c.Name)
	if h.under {
		return strings.HasSuffix(name, "."+h.name)
	}
	return h.name == "" || name == h.name
}

// writeConnections writes one line per connection, oldest first.
func writeConnections(b *strings.Builder, events []audit.Event, width int) {
	for _, e := range events {
		if e.Connection == nil {
			continue
		}
		c := e.Connection
		head := fmt.Sprintf("%s  %-5s %-7s %8s ↑%-6s ↓%-6s ", e.Time.Local().Format("2006-01-02 15:04:05"),
			orDash(e.Verdict), orDash(c.Direction), (time.Duration(e.DurationMS) * time.Millisecond).String(), shortBytes(c.Sent), shortBytes(c.Received))
		b.WriteString(head + cut(printable(connectionWords(&e)), width-len([]rune(head))) + "\n")
	}
}

// connectionWords say who connected where, and by which rule.
func connectionWords(e *audit.Event) string {
	c := e.Connection
	if c.Count > 0 {
		return fmt.Sprintf("%d more connections, %d of them refused", c.Count, c.Refused)
	}
	var b strings.Builder
	b.WriteString(c.Protocol + " " + c.Target())
	if c.Name != "" && c.Address != "" {
		b.WriteString(" (" + c.Address + ")")
	}
	if c.Requests > 0 {
		fmt.Fprintf(&b, " %d requests", c.Requests)
	}
	if c.Program != "" {
		b.WriteString(" by " + c.Program)
	}
	if e.Rule != "" {
		b.WriteString(": " + strings.TrimSpace(e.Rule+" "+e.RuleSubject))
	}
	if e.Error != "" {
		b.WriteString("; " + e.Error)
	}
	return b.String()
}

// shortBytes is a number of bytes in at most five characters.
func shortBytes(n int64) string {
	const units = "BKMGTPE"
	value, unit := float64(max(n, 0)), 0
	for value >= 999.5 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 || value >= 99.95 {
		return strconv.FormatFloat(value, 'f', 0, 64) + units[unit:unit+1]
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + units[unit:unit+1]
}
