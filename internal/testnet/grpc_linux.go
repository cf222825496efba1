package testnet

import (
	"fmt"
	"os/exec"
	"syscall"
)

// GRPCPython is the interpreter that has Debian's python3-grpcio.
const GRPCPython = "/usr/bin/python3"

// hasGRPC reports whether gRPC can be spoken here.
func hasGRPC() bool { return exec.Command(GRPCPython, "-c", "import grpc").Run() == nil }

const grpcServer = `
import grpc, sys
from concurrent import futures
class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/echo.Echo/Say":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
server.add_generic_rpc_handlers((Echo(),))
server.add_insecure_port("[::]:%d")
server.start()
server.wait_for_termination()
`

// GRPCClient is a client that says its second argument to the server named by
// its first, and prints the answer.
const GRPCClient = `
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_http_proxy", 0)])
try:
    print(channel.unary_unary("/echo.Echo/Say")(sys.argv[2].encode(), timeout=120).decode())
except grpc.RpcError as e:
    print(e.code(), e.details())
    sys.exit(1)
`

func (s *servers) startGRPC() error {
	if !hasGRPC() {
		return nil
	}
	c := exec.Command(GRPCPython, "-c", fmt.Sprintf(grpcServer, PortGRPC))
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s.serve(c, PortGRPC)
}
