package main

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/go-throttle/throttle/inbound"
)

// interceptor limits the calls of each tenant; those that name none share the limit of their address.
func interceptor(limits *inbound.Keyed[string]) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		key := "unknown"
		if p, ok := peer.FromContext(ctx); ok {
			key = p.Addr.String()
		}
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("tenant")) == 1 {
			key = "tenant: " + md.Get("tenant")[0]
		}
		if wait := limits.Take(key, 1); wait != 0 {
			return nil, status.Errorf(codes.ResourceExhausted, "try again in %v", wait.Round(time.Second))
		}
		return next(ctx, req)
	}
}

// TestGRPC calls a server with that interceptor, over a connection in memory.
func TestGRPC(t *testing.T) {
	server := grpc.NewServer(grpc.UnaryInterceptor(interceptor(inbound.NewKeyed[string](0, "2/1h window"))))
	pb.RegisterHealthServer(server, health.NewServer())
	wire := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(wire) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return wire.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, c := range []struct {
		tenant string
		want   codes.Code
	}{
		{"a", codes.OK}, {"a", codes.OK}, {"a", codes.ResourceExhausted}, {"b", codes.OK}, {"", codes.OK}, {"", codes.OK}, {"", codes.ResourceExhausted},
	} {
		ctx := t.Context()
		if c.tenant != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "tenant", c.tenant)
		}
		if _, err := pb.NewHealthClient(conn).Check(ctx, new(pb.HealthCheckRequest)); status.Code(err) != c.want {
			t.Errorf("call %d of %q: %v, want %v", i, c.tenant, err, c.want)
		}
	}
}
