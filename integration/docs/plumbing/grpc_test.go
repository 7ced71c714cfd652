package plumbing

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-throttle/throttle"
)

// throttled makes each call of a client wait in q. When the server refuses one for a limit, all calls pause for the time
// that it asks for, and this one is sent again, at most three times.
func throttled(q *throttle.Queue) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		for attempt := 1; ; attempt++ {
			err := q.Do(ctx, func(ctx context.Context) error { return call(ctx, method, req, reply, cc, opts...) })
			if status.Code(err) != codes.ResourceExhausted || attempt == 4 {
				return err
			}
			pause := time.Second // if the server names no time
			for _, detail := range status.Convert(err).Details() {
				if info, ok := detail.(*errdetails.RetryInfo); ok {
					pause = info.GetRetryDelay().AsDuration()
				}
			}
			q.Pause(pause)
		}
	}
}

// A Queue does for gRPC what a Transport does for HTTP, but for learning: a client interceptor asks it.
func Example_grpc() {
	wire, stop := serve()
	defer stop()
	q := throttle.NewQueue(throttle.NewBucket(100, 10), throttle.QueueOptions{MaxInFlight: 20})
	conn, err := grpc.NewClient("passthrough:", grpc.WithUnaryInterceptor(throttled(q)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(wire))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	resp, err := pb.NewHealthClient(conn).Check(context.Background(), &pb.HealthCheckRequest{})
	fmt.Println("caller:", resp.GetStatus(), err)
	// Output:
	// server: ResourceExhausted
	// server: OK
	// caller: SERVING <nil>
}

// serve serves health checks over a connection in memory, and refuses the first one.
func serve() (wire func(context.Context, string) (net.Conn, error), stop func()) {
	var calls atomic.Int32
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if calls.Add(1) == 1 {
			fmt.Println("server:", codes.ResourceExhausted)
			s, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
			if err != nil {
				return nil, err
			}
			return nil, s.Err()
		}
		fmt.Println("server:", codes.OK)
		return next(ctx, req)
	}))
	pb.RegisterHealthServer(server, health.NewServer())
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	return func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }, server.Stop
}
