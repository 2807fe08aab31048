//! The GPUs of a host, as the kernel drivers show them in `/proc` and `/sys`.
//!
//! NVIDIA's driver lists its devices under `/proc/driver/nvidia/gpus`; AMD's
//! and others' appear as cards under `/sys/class/drm`. No vendor tool is run.

use std::path::Path;

use model::Bytes;
use serde::{Deserialize, Serialize};

use crate::{names, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuVendor {
    Nvidia,
    Amd,
    Intel,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub vendor: GpuVendor,
    /// What people call it, such as `NVIDIA A100-SXM4-40GB`.
    pub model: String,
    /// Address on the PCI bus, such as `0000:3b:00.0`: tells two of a kind apart.
    pub pci: String,
    /// Known for devices whose driver says it in `/sys`.
    pub memory: Option<Bytes>,
    /// Device nodes that a program needs to use it.
    pub devices: Vec<String>,
}

const VENDOR_AMD: &str = "0x1002";
const VENDOR_INTEL: &str = "0x8086";

/// All GPUs in the order of their PCI addresses, vendor by vendor.
pub fn gpus(root: &Path) -> Vec<Gpu> {
    let mut gpus = nvidia(root);
    gpus.extend(drm(root));
    gpus
}

fn nvidia(root: &Path) -> Vec<Gpu> {
    let folder = root.join("proc/driver/nvidia/gpus");
    names(&folder)
        .into_iter()
        .filter_map(|pci| nvidia_one(&text(folder.join(&pci).join("information"))?, &pci))
        .collect()
}

/// Reads `information`, whose lines are `Key: \t value`.
fn nvidia_one(information: &str, pci: &str) -> Option<Gpu> {
    let field = |wanted: &str| {
        information.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == wanted).then(|| value.trim())
        })
    };
    let mut devices = vec!["/dev/nvidiactl".to_owned(), "/dev/nvidia-uvm".to_owned()];
    devices.extend(field("Device Minor").map(|minor| format!("/dev/nvidia{minor}")));
    Some(Gpu {
        vendor: GpuVendor::Nvidia,
        model: field("Model")?.to_owned(),
        pci: pci.to_owned(),
        memory: None,
        devices,
    })
}

fn drm(root: &Path) -> Vec<Gpu> {
    let folder = root.join("sys/class/drm");
    let is_card = |name: &String| {
        name.strip_prefix("card").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut gpus: Vec<Gpu> = names(&folder)
        .into_iter()
        .filter(is_card)
        .filter_map(|card| drm_one(&folder.join(&card), &card))
        .collect();
    gpus.sort_by(|a, b| a.pci.cmp(&b.pci));
    gpus
}

/// A card of another vendor is none for us: a server's display chip, or NVIDIA's, which is counted above.
fn drm_one(card: &Path, name: &str) -> Option<Gpu> {
    let device = card.join("device");
    let vendor = match text(device.join("vendor"))?.as_str() {
        VENDOR_AMD => GpuVendor::Amd,
        VENDOR_INTEL => GpuVendor::Intel,
        _ => return None,
    };
    let uevent = text(device.join("uevent")).unwrap_or_default();
    let pci = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?.to_owned();
    let memory = text(device.join("mem_info_vram_total")).and_then(|bytes| bytes.parse().ok()).map(Bytes);
    let mut devices = vec![format!("/dev/dri/{name}")];
    devices.extend(
        names(device.join("drm"))
            .into_iter()
            .filter(|n| n.starts_with("renderD"))
            .map(|n| format!("/dev/dri/{n}")),
    );
    if vendor == GpuVendor::Amd {
        devices.push("/dev/kfd".to_owned());
    }
    Some(Gpu { vendor, model: drm_model(&device, vendor), pci, memory, devices })
}

/// Newer cards say their product name; the others are named by their PCI device number.
fn drm_model(device: &Path, vendor: GpuVendor) -> String {
    let product = text(device.join("product_name")).filter(|name| !name.is_empty());
    product.unwrap_or_else(|| {
        let number = text(device.join("device")).unwrap_or_default();
        let maker = if vendor == GpuVendor::Amd { "AMD" } else { "Intel" };
        format!("{maker} {}", number.trim_start_matches("0x"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    #[test]
    fn a_host_without_gpus_has_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(gpus(root.path()), []);
    }

    #[test]
    fn nvidia_devices_are_read_as_the_driver_writes_them() {
        let root = tempfile::tempdir().unwrap();
        for (pci, minor) in [("0000:3b:00.0", 0), ("0000:86:00.0", 1)] {
            write(
                root.path(),
                &format!("proc/driver/nvidia/gpus/{pci}/information"),
                &format!(
                    "Model: \t\t Tesla V100-SXM2-16GB\nIRQ:   \t\t 305\nGPU UUID: \t GPU-67fe1e1b\nBus Type: \t PCIe\n\
                     Bus Location: \t {pci}\nDevice Minor: \t {minor}\nGPU Firmware: \t N/A\nGPU Excluded:\t No\n"
                ),
            );
        }
        let found = gpus(root.path());
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].model, "Tesla V100-SXM2-16GB");
        assert_eq!(found[1].pci, "0000:86:00.0");
        assert!(found[1].devices.contains(&"/dev/nvidia1".to_owned()));
    }

    #[test]
    fn amd_cards_are_read_from_drm_and_connectors_are_not_cards() {
        let root = tempfile::tempdir().unwrap();
        let device = "sys/class/drm/card1/device";
        write(root.path(), &format!("{device}/vendor"), "0x1002\n");
        write(root.path(), &format!("{device}/device"), "0x740f\n");
        write(root.path(), &format!("{device}/product_name"), "AMD Instinct MI210\n");
        write(root.path(), &format!("{device}/mem_info_vram_total"), "68702699520\n");
        write(root.path(), &format!("{device}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c3:00.0\n");
        write(root.path(), &format!("{device}/drm/renderD129/dev"), "226:129\n");
        write(root.path(), "sys/class/drm/card1-HDMI-A-1/status", "disconnected\n");
        write(root.path(), "sys/class/drm/card0/device/vendor", "0x1a03\n");
        write(root.path(), "sys/class/drm/version", "drm 1.1.0 20060810\n");
        let found = gpus(root.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].model, "AMD Instinct MI210");
        assert_eq!(found[0].memory, Some(Bytes(68_702_699_520)));
        assert_eq!(found[0].devices, ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"]);
    }

    #[test]
    fn a_card_without_a_product_name_is_named_by_its_number() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/class/drm/card0/device/vendor", "0x8086\n");
        write(root.path(), "sys/class/drm/card0/device/device", "0x56c0\n");
        write(root.path(), "sys/class/drm/card0/device/uevent", "PCI_SLOT_NAME=0000:4d:00.0\n");
        assert_eq!(gpus(root.path())[0].model, "Intel 56c0");
    }
}
