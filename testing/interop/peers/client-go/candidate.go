// A candidate in a leader election of client-go: candidate KUBECONFIG NAMESPACE NAME IDENTITY SECONDS
//
// It prints `leads`, `stopped`, and `sees IDENTITY` for each new leader. TERM makes it print `ends` and release the Lease.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig, namespace, name, identity := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	seconds, err := strconv.Atoi(os.Args[5])
	if err != nil {
		panic(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		panic(err)
	}
	lease := time.Duration(seconds) * time.Second
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name,
		resourcelock.ResourceLockConfig{Identity: identity}, config, lease*2/3)
	if err != nil {
		panic(err)
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ended, func() { fmt.Println("ends") })
	leaderelection.RunOrDie(ended, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   lease,
		RenewDeadline:   lease * 2 / 3,
		RetryPeriod:     lease / 8,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("leads") },
			OnStoppedLeading: func() { fmt.Println("stopped") },
			OnNewLeader:      func(leader string) { fmt.Println("sees", leader) },
		},
	})
}
