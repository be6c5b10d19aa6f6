#!/bin/bash
# A machine of a test cluster: its processes, mounts and control groups are its own, so that
# nothing of it is left when its first process ends. It starts in the network of the cluster.
# Its pods have addresses of 10.200.NUMBER.0/24, and it itself has 10.201.0.NUMBER on a bridge of
# the first machine.
#
# machine.sh FOLDER NUMBER NETWORK [STAGE]
#   FOLDER   where all of it lies
#   NUMBER   1 is in the network of the cluster, others in ones of their own
#   NETWORK  the process that holds the network of the cluster
#   STAGE    `remove` removes the control groups of one that has ended
set -eu
folder=$1 number=$2 network=$3 stage=${4:-start}
name=node-$number
own=$folder/$name
address=10.201.0.$number
pods=10.200.$number

# Prints what the machine's control groups are called, each after its place.
groups() {
  while IFS=: read -r _ kinds path; do
    case $kinds in
      '') place=/sys/fs/cgroup/unified; [ -d $place ] || place=/sys/fs/cgroup ;;
      *) place=/sys/fs/cgroup/${kinds#name=} ;;
    esac
    [ ! -d "$place" ] || echo "$place ${path%/}/myriad.$(basename "$folder").$name"
  done </proc/self/cgroup
}

case $stage in
  remove)
    [ -f "$own.groups" ] || exit 0
    # They go once their last process has ended.
    while read -r place path; do
      [ -d "$place$path" ] || continue
      find "$place$path" -depth -type d | while read -r group; do
        left=100
        until rmdir "$group" 2>/dev/null || [ ! -d "$group" ]; do
          left=$((left - 1))
          [ $left -gt 0 ] || { echo "$group is in use" >&2; exit 1; }
          sleep 0.1
        done
      done
    done <"$own.groups"
    exit ;;

  start)
    [ "$number" = 1 ] || exec unshare --net bash "$0" "$folder" "$number" "$network" linked
    if ! ip link show lan >/dev/null 2>&1; then
      ip link add lan type bridge
      ip addr add $address/24 dev lan
      ip link set lan up
      ip route add default dev lan
    fi ;;

  linked)
    outside="nsenter --target=$network --net"
    $outside ip link delete $name 2>/dev/null || true
    $outside ip link add $name type veth peer name eth0 netns $$
    $outside ip link set $name master lan up
    $outside ip route replace $pods.0/24 via $address
    ip link set lo up
    ip addr add $address/24 dev eth0
    ip link set eth0 up
    ip route add default via 10.201.0.1 ;;
esac

case $stage in
  start | linked)
    echo 1 >/proc/sys/net/ipv4/ip_forward
    groups >"$own.groups"
    while read -r place path; do
      mkdir -p "$place$path"
      # The group of processors takes nobody before it has some.
      for of in cpus mems; do
        [ ! -f "$place$path/cpuset.$of" ] ||
          cat "$place${path%/*}/cpuset.$of" >"$place$path/cpuset.$of"
      done
      echo $$ >"$place$path/cgroup.procs"
    done <"$own.groups"
    exec unshare --mount --pid --cgroup --fork --kill-child --mount-proc \
      bash "$0" "$folder" "$number" "$network" inside ;;
esac

# Inside. What is mounted from now on is seen here alone.
mount --make-rshared /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /opt
mkdir -p /var/lib/cni
mount -t tmpfs tmpfs /var/lib/cni
while read -r place path; do
  umount "$place"
  case $place in
    */unified | /sys/fs/cgroup) mount -t cgroup2 cgroup2 "$place" ;;
    */systemd) mount -t cgroup -o none,name=systemd cgroup "$place" ;;
    *) mount -t cgroup -o "$(basename "$place")" cgroup "$place" ;;
  esac
done <"$own.groups"
# With version 2 a group has processes or bounds those of the groups below, and never both.
if [ -f /sys/fs/cgroup/cgroup.subtree_control ]; then
  mkdir -p /sys/fs/cgroup/machine
  while read -r process; do
    echo "$process" >/sys/fs/cgroup/machine/cgroup.procs || true
  done </sys/fs/cgroup/cgroup.procs
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
  done
fi

mkdir -p "$own/cni/conf" "$own/kubelet"
cat >"$own/containerd.toml" <<END
version = 2
root = "$own/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "myriad.dev/pause:1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$own/cni/conf"
END
# Each pod has a link of its own to the machine, so that all it sends passes the rules of Services.
cat >"$own/cni/conf/pods.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "$own/cni/addresses",
    "ranges": [[{"subnet": "$pods.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
echo nameserver 10.96.0.10 >"$own/resolv.conf"
cat >"$own/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
oomScoreAdj: 0
evictionHard:
  memory.available: 0%
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: $own/resolv.conf
address: $address
healthzPort: 0
# What is asked for comes from the network of the cluster, which is nobody else's.
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
# As many as there are addresses: those of a proxy for each of many Gateways are among them.
maxPods: 250
# Tests look at changes of ConfigMaps and Secrets, and wait for each.
configMapAndSecretChangeDetectionStrategy: Watch
END
cat >"$own/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $folder/kube-proxy.kubeconfig}
hostnameOverride: $name
clusterCIDR: 10.200.0.0/16
bindAddress: $address
healthzBindAddress: $address:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
# They belong to the whole machine beneath.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms, syncPeriod: 30s}
END

PATH=$(cat "$folder/programs"):$PATH
export PATH
containerd --config "$own/containerd.toml" >"$folder/logs/$name.containerd.log" 2>&1 &
until ctr --address /run/containerd/containerd.sock version >/dev/null 2>&1; do
  kill -0 $! || exit 1
  sleep 0.1
done
ctr="ctr --address /run/containerd/containerd.sock --namespace k8s.io"
$ctr images import "$folder/pause.tar" >/dev/null
kube-proxy --config "$own/kube-proxy.yaml" >"$folder/logs/$name.kube-proxy.log" 2>&1 &
kubelet --config "$own/kubelet.yaml" --kubeconfig "$folder/$name.kubeconfig" \
  --root-dir "$own/kubelet" --hostname-override $name --node-ip $address \
  --node-labels "topology.kubernetes.io/region=here,topology.kubernetes.io/zone=zone-$number" \
  >"$folder/logs/$name.kubelet.log" 2>&1 &
# A machine is whole or not there.
wait -n
exit 1
