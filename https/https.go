// Package https looks inside TLS for cloche: it judges requests of HTTPS by method and path, and puts
// secrets into them that the command cannot read. It is a package of its own because it links net/http and
// crypto/tls, which most programs that embed cloche can do without.
//
//	session, err := cloche.Open(ctx, p, cloche.WithInspection(https.Inspect))
package https

import (
	"github.com/cloche-dev/cloche/internal/inspect"
	"github.com/cloche-dev/cloche/internal/inspection"
)

// Inspect is for cloche.WithInspection.
func Inspect(c inspection.Config) (inspection.Inspector, error) {
	return inspect.New(inspect.Config{Secrets: c.Secrets, Judge: c.Judge, Lenient: c.Lenient, Record: c.Record, Misuse: c.Misuse})
}
