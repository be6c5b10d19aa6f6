#!/bin/bash
# Gives Services of type LoadBalancer an address, as clouds do. kube-proxy leads it to the pods, on
# the first node as on all others. It is told by that of the Service within the cluster, or it is
# the one that the Service asks for (spec.loadBalancerIP): those of 10.112.0.0/24 are for that, and
# no other is given to who asks.
set -u
folder=$(dirname "$0")
export KUBECONFIG=$folder/kubeconfig PATH=$(cat "$folder/programs"):$PATH
form='{.metadata.namespace} {.metadata.name} {.spec.type} {.spec.clusterIP}'
form="$form wanted={.spec.loadBalancerIP} known={.status.loadBalancer.ingress[0].ip}{'\\n'}"
while true; do
  kubectl get services --all-namespaces --watch --output=jsonpath="$form" |
    while read -r namespace name type address wanted known; do
      [ "$type" = LoadBalancer ] || continue
      wanted=${wanted#wanted=} known=${known#known=}
      case $wanted in
        "$known") [ -z "$known" ] || continue ;;
        '') continue ;;
        10.112.0.*) ;;
        *) continue ;;
      esac
      IFS=. read -r a b c d <<<"$address"
      given=${wanted:-$a.$((b + 16)).$c.$d}
      status="{\"status\":{\"loadBalancer\":{\"ingress\":[{\"ip\":\"$given\"}]}}}"
      kubectl patch service "$name" --namespace "$namespace" --subresource=status --patch "$status"
    done
  # A watch ends now and then, and the API server may be away.
  sleep 0.5
done
