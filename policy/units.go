package policy

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// unlimitedText is how policy files write Unlimited.
const unlimitedText = "unlimited"

// A duration is a time limit; Unlimited means no limit.
type duration time.Duration

// A size is a limit in bytes; Unlimited means no limit.
type size int64

// A count is a limit on a number of things; Unlimited means no limit.
type count int64

// sizeUnits are the units of sizes, largest binary ones first, so that String
// finds the shortest form. Single letters are binary, as in ulimit and in
// systemd units.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10},
	{"B", 1},
}

// parseSize reads a size such as "4GiB" (binary), "10MB" (decimal), "512k"
// (binary), "1024" (bytes) or "unlimited".
func parseSize(s string) (size, error) {
	if s == unlimitedText {
		return Unlimited, nil
	}
	number, unit := s, int64(1)
	for _, u := range sizeUnits {
		if n, ok := cutSuffixFold(s, u.name); ok {
			number, unit = strings.TrimRight(n, " "), u.bytes
			break
		}
	}
	n, whole := parseDigits(number)
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case !whole && (err != nil || !strings.Contains(number, ".") || strings.ContainsAny(number, "eExXpP_+-")):
		return 0, faultf("write a number and a unit such as 4GiB, 10MB or 512k, or unlimited", "%q is not a size", s)
	case whole && n > (math.MaxInt64-1)/unit, !whole && f*float64(unit) >= math.MaxInt64:
		return 0, faultf("write a smaller size, or unlimited", "the size %q is too large", s)
	case whole:
		n *= unit
	default:
		n = int64(f * float64(unit))
	}
	if n <= 0 {
		return 0, faultf("write unlimited to take the limit away", "the size %q is not above zero", s)
	}
	return size(n), nil
}

func cutSuffixFold(s, suffix string) (string, bool) {
	at := len(s) - len(suffix)
	if at < 1 || !strings.EqualFold(s[at:], suffix) {
		return s, false
	}
	return s[:at], true
}

// parseDigits reads an unsigned decimal number of plain digits. For a number that is too large
// it returns math.MaxInt64.
func parseDigits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// String returns the size in the largest binary unit that divides it.
func (s size) String() string {
	if s == Unlimited {
		return unlimitedText
	}
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText writes the size as String does.
func (s size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a size such as "4GiB".
func (s *size) UnmarshalText(b []byte) (err error) {
	*s, err = parseSize(string(b))
	return err
}

// parseDuration reads a time such as "90s", "10m", "1h30m" or "unlimited".
func parseDuration(s string) (duration, error) {
	if s == unlimitedText {
		return Unlimited, nil
	}
	if n, ok := parseDigits(s); ok && n > 0 {
		return 0, faultf("write "+s+"s for seconds, "+s+"m for minutes", "the time %q has no unit", s)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, faultf("write a number and a unit such as 90s, 10m or 1h30m, or unlimited", "%q is not a time", s)
	}
	if d <= 0 {
		return 0, faultf("write unlimited to take the limit away", "the time %q is not above zero", s)
	}
	return duration(d), nil
}

// String returns the time without trailing zero units: "10m", not "10m0s".
func (d duration) String() string {
	if d == Unlimited {
		return unlimitedText
	}
	s := time.Duration(d).String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}

// MarshalText writes the time as String does.
func (d duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the form of [parseDuration].
func (d *duration) UnmarshalText(b []byte) (err error) {
	*d, err = parseDuration(string(b))
	return err
}

// parseCount reads a whole number above zero or "unlimited".
func parseCount(s string) (count, error) {
	if s == unlimitedText {
		return Unlimited, nil
	}
	n, ok := parseDigits(s)
	if !ok || n == 0 || n == math.MaxInt64 {
		return 0, faultf("write a number above zero, or unlimited", "%q is not a count", s)
	}
	return count(n), nil
}

// String returns the number.
func (c count) String() string {
	if c == Unlimited {
		return unlimitedText
	}
	return strconv.FormatInt(int64(c), 10)
}

// MarshalText writes the count as String does.
func (c count) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a whole number above zero or "unlimited".
func (c *count) UnmarshalText(b []byte) (err error) {
	*c, err = parseCount(string(b))
	return err
}
