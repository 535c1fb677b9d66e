"""Several devices, CUDA_VISIBLE_DEVICES, and one identity in all libraries."""

import json

import pytest

LOOK = """
    import ctypes, json, torch, pynvml
    pynvml.nvmlInit()
    driver = ctypes.CDLL("libcuda.so.1")
    found = []
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        bus = "%08x:%02x:%02x.0" % (p.pci_domain_id, p.pci_bus_id, p.pci_device_id)
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        raw = (ctypes.c_ubyte * 16)()
        assert driver.cuDeviceGetUuid(raw, i) == 0
        assert uuid == "GPU-" + str(p.uuid), (uuid, str(p.uuid))
        assert bytes(raw).hex() == uuid[4:].replace("-", "")
        by_uuid = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        assert pynvml.nvmlDeviceGetIndex(by_uuid) == pynvml.nvmlDeviceGetIndex(handle)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        assert torch.cuda.mem_get_info(i)[1] == p.total_memory == memory.total - memory.reserved
        found.append(pynvml.nvmlDeviceGetIndex(handle))
    print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.simcard(devices=["24GiB", "16GiB", "8GiB"])
def test_visible_devices_by_index_and_uuid(simcard):
    uuids = [device.uuid for device in simcard.status().devices]
    cases = {
        None: [0, 1, 2],
        "2,0": [2, 0],
        f"{uuids[2]},{uuids[1]}": [2, 1],
        "1,9,0": [1],  # up to the first that is not there
        "": [],
    }

    running = {visible: simcard.start_python(LOOK, visible=visible) for visible in cases}
    told = {visible: process.communicate(timeout=120) for visible, process in running.items()}

    assert {visible: out and json.loads(out) for visible, (out, _) in told.items()} == cases, told


@pytest.mark.slow
@pytest.mark.simcard(devices=["24GiB"], name="Test card", compute_capability="9.0")
def test_name_and_compute_capability_are_as_asked(simcard):
    done = simcard.python("""
        import torch
        assert torch.cuda.is_available()
        print(torch.cuda.get_device_name(), torch.cuda.get_device_capability(), sep="|")
    """)

    assert done.stdout.strip() == "Test card|(9, 0)"
