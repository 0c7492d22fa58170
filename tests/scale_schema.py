"""Field names of what the files in ``examples/scale`` describe, and a check against them.

Written from public documentation: KubeRay's CRD reference (https://docs.ray.io/en/master/kuberay/references/api.html,
``docs/reference/api.md`` in the repository ray-project/kuberay), and the Kubernetes API reference
(https://kubernetes.io/docs/reference/kubernetes-api/) for Job, Service, ConfigMap and pods. Kinds of KubeRay are listed
whole, without what it calls deprecated; of Kubernetes only what a file of this kind could need.
"""

from collections.abc import Iterator
from typing import Any

__all__ = ["KINDS", "problems"]

Texts, Anything = {"": str}, {"": object}
"""Any key: with text, with anything (what another document describes)."""

Quantity = (str, int)
ENV = [{"name": str, "value": str, "valueFrom": {"secretKeyRef": {"name": str, "key": str}, "fieldRef": Anything}}]
VOLUME = {
    "name": str,
    "persistentVolumeClaim": {"claimName": str, "readOnly": bool},
    "emptyDir": {"medium": str, "sizeLimit": Quantity},
    "configMap": {"name": str},
    "secret": {"secretName": str},
    "hostPath": {"path": str, "type": str},
}
CONTAINER = {
    "name": str,
    "image": str,
    "imagePullPolicy": str,
    "command": [str],
    "args": [str],
    "workingDir": str,
    "env": ENV,
    "envFrom": [{"secretRef": {"name": str}, "configMapRef": {"name": str}}],
    "ports": [{"name": str, "containerPort": int, "protocol": str}],
    "resources": {"limits": {"": Quantity}, "requests": {"": Quantity}},
    "volumeMounts": [{"name": str, "mountPath": str, "subPath": str, "readOnly": bool}],
}
POD = {
    "subdomain": str,
    "hostname": str,
    "restartPolicy": str,
    "nodeSelector": Texts,
    "tolerations": [Anything],
    "serviceAccountName": str,
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [VOLUME],
}
METADATA = {"name": str, "namespace": str, "labels": Texts, "annotations": Texts}
TEMPLATE = {"metadata": METADATA, "spec": POD}
HEAD_GROUP = {
    "template": TEMPLATE,
    "headService": Anything,
    "enableIngress": bool,
    "rayStartParams": Texts,
    "serviceType": str,
}
WORKER_GROUP = {
    "suspend": bool,
    "groupName": str,
    "replicas": int,
    "minReplicas": int,
    "maxReplicas": int,
    "idleTimeoutSeconds": int,
    "rayStartParams": Texts,
    "template": TEMPLATE,
    "scaleStrategy": {"workersToDelete": [str]},
    "numOfHosts": int,
}
RAY_CLUSTER = {
    "suspend": bool,
    "managedBy": str,
    "authOptions": {"mode": str, "secretName": str, "enableK8sTokenAuth": bool},
    "autoscalerOptions": Anything,
    "headServiceAnnotations": Texts,
    "enableInTreeAutoscaling": bool,
    "gcsFaultToleranceOptions": Anything,
    "headGroupSpec": HEAD_GROUP,
    "rayVersion": str,
    "workerGroupSpecs": [WORKER_GROUP],
}
RAY_JOB = {
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "rayClusterSpec": RAY_CLUSTER,
    "submitterPodTemplate": TEMPLATE,
    "metadata": Texts,
    "clusterSelector": Texts,
    "submitterConfig": {"backoffLimit": int},
    "managedBy": str,
    "deletionStrategy": Anything,
    "entrypoint": str,
    "runtimeEnvYAML": str,
    "jobId": str,
    "submissionMode": str,
    "entrypointResources": str,
    "entrypointNumCpus": (int, float),
    "entrypointNumGpus": (int, float),
    "ttlSecondsAfterFinished": int,
    "shutdownAfterJobFinishes": bool,
    "suspend": bool,
}
RAY_SERVICE = {
    "serveService": Anything,
    "upgradeStrategy": {"type": str},
    "serveConfigV2": str,
    "rayClusterConfig": RAY_CLUSTER,
    "excludeHeadPodFromServeSvc": bool,
}
JOB = {
    "completionMode": str,
    "completions": int,
    "parallelism": int,
    "backoffLimit": int,
    "backoffLimitPerIndex": int,
    "activeDeadlineSeconds": int,
    "ttlSecondsAfterFinished": int,
    "podFailurePolicy": Anything,
    "suspend": bool,
    "template": TEMPLATE,
}
SERVICE = {
    "clusterIP": str,
    "publishNotReadyAddresses": bool,
    "selector": Texts,
    "type": str,
    "ports": [{"name": str, "port": int, "targetPort": Quantity}],
}
KINDS: dict[tuple[str, str], dict[str, Any]] = {
    ("ray.io/v1", "RayJob"): {"spec": RAY_JOB},
    ("ray.io/v1", "RayService"): {"spec": RAY_SERVICE},
    ("ray.io/v1", "RayCluster"): {"spec": RAY_CLUSTER},
    ("batch/v1", "Job"): {"spec": JOB},
    ("v1", "Service"): {"spec": SERVICE},
    ("v1", "ConfigMap"): {"data": Texts},
}


def problems(document: Any) -> list[str]:  # noqa: ANN401 - what YAML gives
    """What is wrong with a document, a line each."""
    if not isinstance(document, dict):
        return ["a document must be a mapping"]
    found = [f"{name} is missing" for name in ("apiVersion", "kind", "metadata") if name not in document]
    if found:
        return found
    kind = KINDS.get((document["apiVersion"], document["kind"]))
    if kind is None:
        return [f"{document['apiVersion']} {document['kind']} is not known here"]
    found = [] if document["metadata"].get("name") else ["metadata.name is missing"]
    found += [f"{name} is missing" for name in kind if name not in document]
    return found + list(_compare(document, {"apiVersion": str, "kind": str, "metadata": METADATA} | kind, ""))


def _compare(value: Any, schema: Any, place: str) -> Iterator[str]:  # noqa: ANN401
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{place} must be a mapping, got {value!r}"
            return
        for name, inner in value.items():
            where = f"{place}.{name}".removeprefix(".")
            if name in schema or "" in schema:
                yield from _compare(inner, schema.get(name, schema.get("")), where)
            else:
                yield f"{where} is not a field"
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{place} must be a list, got {value!r}"
            return
        for number, inner in enumerate(value):
            yield from _compare(inner, schema[0], f"{place}[{number}]")
    elif not isinstance(value, schema) or (isinstance(value, bool) and schema not in {bool, object}):
        yield f"{place} has the wrong type, got {value!r}"
