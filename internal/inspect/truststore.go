package inspect

import (
	"crypto/sha1"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf16"
)

// TrustStorePassword is the password of the store of JavaTrustStore, the one that Java
// itself uses. It only detects damage: certificates are public.
const TrustStorePassword = "changeit"

// JavaTrustStore returns a trust store for Java with the certificates of PEM bundles and
// the authority's. It has the old format JKS, which every version of Java reads, also where
// it expects PKCS #12.
func (i *Inspector) JavaTrustStore(bundles ...[]byte) ([]byte, error) {
	certs := [][]byte{i.authority.cert.Raw}
	for _, bundle := range bundles {
		before := len(certs)
		for {
			var block *pem.Block
			if block, bundle = pem.Decode(bundle); block == nil {
				break
			}
			// Java reads a store as a whole: one bad certificate would spoil it.
			if _, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
				certs = append(certs, block.Bytes)
			}
		}
		if len(certs) == before {
			return nil, errors.New("cannot make a trust store for Java: a bundle has no certificate in PEM")
		}
	}
	return javaStore(certs, time.Now())
}

// The parts of the format JKS.
const (
	jksMagic   = 0xfeedfeed
	jksVersion = 2
	jksTrusted = 2
	// jksSalt is hashed with the password and the content.
	jksSalt = "Mighty Aphrodite"
)

func javaStore(certs [][]byte, now time.Time) ([]byte, error) {
	var b []byte
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint32(b, jksMagic)
	b = binary.BigEndian.AppendUint32(b, jksVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(certs)))
	for n, cert := range certs {
		b = binary.BigEndian.AppendUint32(b, jksTrusted)
		text("cloche" + strconv.Itoa(n))
		b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMilli()))
		text("X.509")
		b = binary.BigEndian.AppendUint32(b, uint32(len(cert)))
		b = append(b, cert...)
	}
	h := sha1.New()
	for _, c := range utf16.Encode([]rune(TrustStorePassword)) {
		if err := binary.Write(h, binary.BigEndian, c); err != nil {
			return nil, fmt.Errorf("cannot make a trust store for Java: %w", err)
		}
	}
	h.Write([]byte(jksSalt))
	h.Write(b)
	return h.Sum(b), nil
}
