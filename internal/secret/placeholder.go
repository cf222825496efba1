package secret

import (
	"crypto/rand"
	"math"
	"math/big"
	"strings"
)

// prefixes are the beginnings of tokens by which programs recognise their kind, longer ones
// before those that they begin with.
var prefixes = []string{
	"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "gldt-", "npm_", "pypi-", "cio", "dckr_pat_", "dckr_oat_",
	"sk-ant-api03-", "sk-ant-oat01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-or-v1-", "sk-", "sk_live_", "sk_test_", "rk_live_",
	"AKIA", "ASIA", "AIza", "ya29.", "GOCSPX-", "xoxb-", "xoxp-", "xoxa-", "xapp-", "hf_", "gsk_", "xai-", "hvs.", "tskey-", "dop_v1_", "lin_api_", "ntn_", "SG.",
}

// entropy is how many random bits a placeholder has at least. Nobody can guess one, so what
// comes with a placeholder of this run comes from this run.
const entropy = 128

const (
	digits = "0123456789"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// Placeholder returns a random text of the same shape as a value: its length, a prefix that tells
// its kind, its punctuation, and the kinds of its characters. Programs that check a token before
// they send it accept it. If the value is too short for 128 random bits, the placeholder is longer.
//
// It tells no more about the value than that shape.
func Placeholder(value []byte) string {
	prefix := ""
	for _, p := range prefixes {
		if strings.HasPrefix(string(value[:min(len(value), len(p))]), p) && len(value) > len(p) {
			prefix = p
			break
		}
	}
	rest := value[len(prefix):]
	alphabet := alphabetOf(rest)
	var b strings.Builder
	b.WriteString(prefix)
	bits := 0.0
	random := func() {
		b.WriteByte(alphabet[pick(len(alphabet))])
		bits += math.Log2(float64(len(alphabet)))
	}
	for _, c := range rest {
		if isPunctuation(c) {
			b.WriteByte(c)
		} else {
			random()
		}
	}
	for bits < entropy {
		random()
	}
	return b.String()
}

// alphabetOf returns the characters of the kinds that a value has.
func alphabetOf(value []byte) string {
	var hasDigit, hasLower, hasUpper bool
	hexLower, hexUpper := true, true
	for _, c := range value {
		switch {
		case isPunctuation(c):
		case c >= '0' && c <= '9':
			hasDigit = true
		case c >= 'a' && c <= 'z':
			hasLower, hexUpper = true, false
			hexLower = hexLower && c <= 'f'
		case c >= 'A' && c <= 'Z':
			hasUpper, hexLower = true, false
			hexUpper = hexUpper && c <= 'F'
		default: // not ASCII: there is no shape to keep
			return lower + upper + digits
		}
	}
	switch {
	case hasDigit && hasLower && hexLower && !hasUpper:
		return digits + lower[:6]
	case hasDigit && hasUpper && hexUpper && !hasLower:
		return digits + upper[:6]
	}
	var alphabet string
	if hasLower {
		alphabet += lower
	}
	if hasUpper {
		alphabet += upper
	}
	if hasDigit || alphabet == "" {
		alphabet += digits
	}
	return alphabet
}

// isPunctuation reports whether a character of a token separates its parts, or pads it.
func isPunctuation(c byte) bool { return strings.IndexByte("._-=+/~:", c) >= 0 }

// pick returns a random number below n, each as likely as the others.
func pick(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic("secret: the system has no random numbers: " + err.Error()) // crypto/rand never fails on these systems
	}
	return int(i.Int64())
}
