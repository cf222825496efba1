package inspect

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

func TestJavaTrustStore(t *testing.T) {
	i, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	junk := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("junk")})
	b, err := i.JavaTrustStore(append(junk, other.pem()...))
	if err != nil {
		t.Fatal(err)
	}
	if n := b[11]; n != 2 || !bytes.Contains(b, i.authority.cert.Raw) || !bytes.Contains(b, other.cert.Raw) || bytes.Contains(b, []byte("junk")) {
		t.Errorf("a store with %d certificates", n)
	}
	if _, err := i.JavaTrustStore([]byte("no certificate")); err == nil {
		t.Error("a bundle without certificates is accepted")
	}
	testenv.Need(t, "keytool")
	file := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("keytool", "-list", "-keystore", file, "-storepass", TrustStorePassword).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "contains 2 entries") {
		t.Errorf("keytool: %v\n%s", err, out)
	}
}

// The bytes of a store of the format's own description: magic, version, count, entries,
// and the digest of the password in UTF-16, a salt and the content.
func TestJavaStoreBytes(t *testing.T) {
	b, err := javaStore([][]byte{[]byte("cert")}, time.UnixMilli(0x0102030405))
	if err != nil {
		t.Fatal(err)
	}
	want := "\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01" + "\x00\x00\x00\x02\x00\x07cloche0" + "\x00\x00\x00\x01\x02\x03\x04\x05" + "\x00\x05X.509" + "\x00\x00\x00\x04cert"
	if !strings.HasPrefix(string(b), want) || len(b) != len(want)+20 {
		t.Errorf("got %q", b)
	}
}
